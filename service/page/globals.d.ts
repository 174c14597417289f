// Numbers of JSON as they are written; of browsers from 2025 on.

interface JSON {
  rawJSON?(text: string): unknown;
}
interface BigInt {
  toJSON(): unknown;
}

// Libraries that index.html or docs.html loads as scripts.

type Inputs = readonly unknown[];

declare const preact: { h: unknown; render(what: unknown, into: Element): void };
declare const preactHooks: {
  useEffect(work: () => unknown, inputs?: Inputs): void;
  useLayoutEffect(work: () => unknown, inputs?: Inputs): void;
  useErrorBoundary(): [any, () => void];
  useMemo<Value>(make: () => Value, inputs: Inputs): Value;
  useReducer(next: (state: any, action?: any) => any, start: any): [any, (action?: any) => void];
  useRef(start?: any): { current: any };
  useState(start?: any): [any, (next: any) => void];
};
declare const htm: {
  bind(h: unknown): (words: TemplateStringsArray, ...values: unknown[]) => any;
};
declare const SwaggerUIBundle: any;

// What our own functions take and return, where it is said in no other way.

type Asked<Data> = { data?: Data; problem?: any; waiting?: boolean; repeat(): void };
type Falsy = undefined | null | false | "";
type Raw = (method: string, path: string, more?: RequestInit) => Promise<Response>;
type GetAnswer = <Path extends string>(
  path: Path, signal?: AbortSignal,
) => Promise<Answers.Get<Path>>;
type PostAnswer = <Path extends string>(
  path: Path, body?: unknown, signal?: AbortSignal,
) => Promise<Answers.Post<Path>>;
type At = <Rest extends string = "">(
  name: string, rest?: Rest,
) => `v1/collections/${string}${Rest}`;
type UseAsk = <Data>(
  make: (signal: AbortSignal) => Promise<Data> | Falsy, inputs: Inputs,
) => Asked<Data>;
type UseAnswer = <Path extends string | Falsy, Body = undefined>(
  path: Path, body?: Body, ...inputs: unknown[]
) => Asked<
  Body extends undefined ? Answers.Get<Exclude<Path, Falsy>> : Answers.Post<Exclude<Path, Falsy>>
>;

// What is asked of the document is HTML.

interface ParentNode {
  querySelector<Found extends Element = HTMLElement>(selectors: string): Found | null;
  querySelectorAll<Found extends Element = HTMLElement>(selectors: string): NodeListOf<Found>;
}
interface Element {
  closest<Found extends Element = HTMLElement>(selectors: string): Found | null;
}
interface Document {
  readonly activeElement: HTMLElement | null;
}
