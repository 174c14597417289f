export const { render } = preact;
export const {
	useEffect,
	useErrorBoundary,
	useLayoutEffect,
	useMemo,
	useReducer,
	useRef,
	useState,
} = preactHooks;
export const html = htm.bind(preact.h);
