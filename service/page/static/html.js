export const { render } = preact;
export const { useEffect, useErrorBoundary, useMemo, useReducer, useRef, useState } = preactHooks;
export const html = htm.bind(preact.h);
