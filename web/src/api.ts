// Calls to the API server, through coracle dashboard.

export interface Meta {
  name: string;
  namespace?: string;
  uid: string;
  resourceVersion?: string;
  creationTimestamp: string;
  deletionTimestamp?: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  ownerReferences?: { kind: string; name: string; uid: string; controller?: boolean }[];
  managedFields?: unknown;
}

/** An object of Kubernetes. What is below spec and status depends on its kind. */
export interface Obj {
  apiVersion?: string;
  kind?: string;
  metadata: Meta;
  spec?: any;
  status?: any;
  [field: string]: any;
}

/** A list in an object of any kind, whose fields may have any form. */
export const many = (list: unknown): any[] => (Array.isArray(list) ? list : []);

/** A failed call, with the sentence of the API server. */
export class Failed extends Error {
  code: number;
  constructor(code: number, message: string) {
    super(message);
    this.code = code;
  }
}

async function send(path: string, init?: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, init);
  } catch (e) {
    if ((e as Error).name === "AbortError") throw e;
    throw new Failed(0, "coracle dashboard does not answer. Is it still running?");
  }
  if (response.ok) return response;
  const text = await response.text();
  let message = text || response.statusText;
  try {
    message = JSON.parse(text).message ?? message;
  } catch {
    // it is text
  }
  throw new Failed(response.status, message);
}

export async function get<T = Obj>(path: string, signal?: AbortSignal): Promise<T> {
  return (await send(path, { headers: { Accept: "application/json" }, signal })).json();
}

export async function write<T = Obj>(method: string, path: string, body?: unknown, type = "application/json"): Promise<T> {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  const init = { method, headers: { Accept: "application/json", "Content-Type": type }, body: body === undefined ? undefined : text };
  return (await send(path, init)).json();
}

export const patch = (path: string, body: unknown) => write("PATCH", path, body, "application/merge-patch+json");

/** Calls a function with each piece of text as it comes. */
export async function stream(path: string, each: (text: string) => void, signal: AbortSignal) {
  const reader = (await send(path, { signal })).body!.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    each(value);
  }
}

/** Opens a WebSocket: a browser allows many of them, but only six other connections to a server. */
export function socket(path: string, protocols?: string[]): WebSocket {
  return new WebSocket(location.origin.replace(/^http/, "ws") + path, protocols);
}

/** Shows the secret of the page's address, if it has one, and removes it from the address bar and the history. */
export async function enter() {
  const secret = /^#([A-Za-z0-9_-]{32,})$/.exec(location.hash)?.[1];
  if (!secret) return;
  await send("/session", { method: "POST", body: JSON.stringify({ secret }) });
  location.replace("#/overview"); // in the place of the entry in the history
}

export interface Facts {
  version: string;
  context: string;
  namespace: string;
  server: string;
  readOnly: boolean;
  reports: string[];
}
