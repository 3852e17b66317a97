// Lists of objects that stay up to date: one list, then a watch from its version on.

import { type Signal, signal } from "@preact/signals";
import { type Obj, Failed, get, socket } from "./api";
import { type Kind, path } from "./kinds";

export type State = "loading" | "live" | "reconnecting" | "denied" | "absent" | "failed";

const pageSize = 500;
const longestPause = 30_000;

/** A Collection has all objects of a kind, in a namespace or in all, while somebody uses it. */
export class Collection {
  readonly items: Signal<Obj[]> = signal([]);
  readonly state: Signal<State> = signal("loading");
  readonly error: Signal<string> = signal("");
  private readonly byUID = new Map<string, Obj>();
  private users = 0;
  private version = "";
  private abort?: AbortController;
  private watch?: WebSocket;
  private pause = 500;
  private flushing = 0;
  private linger = 0;

  constructor(
    readonly kind: Kind,
    readonly namespace: string,
  ) {}

  use(): () => void {
    clearTimeout(this.linger);
    if (this.users++ === 0) inUse.value = [...inUse.peek(), this];
    if (!this.abort) this.start();
    return () => {
      // A view that is opened again in a moment finds it warm.
      if (--this.users > 0) return;
      inUse.value = inUse.peek().filter((c) => c !== this);
      this.linger = window.setTimeout(() => this.stop(), 60_000);
    };
  }

  private start() {
    this.abort = new AbortController();
    collections.set(this.key, this);
    void this.list(this.abort.signal);
  }

  private stop() {
    this.abort?.abort();
    this.abort = undefined;
    this.watch?.close();
    this.watch = undefined;
    if (collections.get(this.key) === this) collections.delete(this.key);
  }

  private get key() {
    return keyOf(this.kind, this.namespace);
  }

  private async list(signal: AbortSignal): Promise<void> {
    const found = new Set<string>();
    let next = "";
    try {
      do {
        const query = `?limit=${pageSize}${next ? `&continue=${encodeURIComponent(next)}` : ""}`;
        const page = await get<any>(path(this.kind, this.namespace) + query, signal);
        for (const o of page.items as Obj[]) {
          found.add(o.metadata.uid);
          this.keep(o);
        }
        this.version = page.metadata.resourceVersion;
        next = page.metadata.continue ?? "";
        this.flush();
      } while (next);
    } catch (e) {
      if (signal.aborted) return;
      return this.failed(e as Error, signal);
    }
    for (const uid of this.byUID.keys()) if (!found.has(uid)) this.byUID.delete(uid);
    this.flush();
    this.error.value = "";
    this.state.value = "live";
    this.follow(signal);
  }

  private failed(e: Error, signal: AbortSignal) {
    this.error.value = e.message;
    const code = e instanceof Failed ? e.code : 0;
    if (code === 403 || code === 401) this.state.value = "denied";
    else if (code === 404) this.state.value = "absent";
    else this.state.value = this.byUID.size ? "reconnecting" : "failed";
    this.later(signal, () => this.list(signal), this.state.value === "denied" || this.state.value === "absent" ? longestPause : 0);
  }

  private later(signal: AbortSignal, what: () => unknown, atLeast = 0) {
    const timer = setTimeout(what, Math.max(atLeast, this.pause * (0.5 + Math.random())));
    signal.addEventListener("abort", () => clearTimeout(timer));
    this.pause = Math.min(this.pause * 2, longestPause);
  }

  private follow(signal: AbortSignal) {
    const query = `?watch=true&allowWatchBookmarks=true&resourceVersion=${this.version}`;
    const ws = socket(path(this.kind, this.namespace) + query);
    this.watch = ws;
    ws.onopen = () => (this.state.value = "live");
    ws.onmessage = (message) => this.event(JSON.parse(message.data), ws, signal);
    ws.onclose = () => {
      if (signal.aborted || this.watch !== ws) return;
      if (this.state.value === "live") this.state.value = "reconnecting";
      // A refused watch says nothing to a browser; the list does.
      this.later(signal, () => (this.state.value === "reconnecting" && this.pause < 4000 ? this.follow(signal) : this.list(signal)));
    };
  }

  private event(e: { type: string; object: Obj }, ws: WebSocket, signal: AbortSignal) {
    if (e.type === "ERROR") {
      this.watch = undefined;
      ws.close();
      this.later(signal, () => this.list(signal)); // usually 410: the version is too old
      return;
    }
    this.pause = 500; // a watch that only opens may be closed at once, again and again
    this.version = e.object.metadata.resourceVersion ?? this.version;
    if (e.type === "BOOKMARK") return;
    if (e.type === "DELETED") this.byUID.delete(e.object.metadata.uid);
    else this.keep(e.object);
    this.flushing ||= window.setTimeout(() => this.flush(), 80);
  }

  private keep(o: Obj) {
    delete o.metadata.managedFields;
    o.kind ??= this.kind.kind; // objects in a list do not say it
    o.apiVersion ??= this.kind.group ? `${this.kind.group}/${this.kind.version}` : this.kind.version;
    this.byUID.set(o.metadata.uid, o);
  }

  private flush() {
    clearTimeout(this.flushing);
    this.flushing = 0;
    this.items.value = [...this.byUID.values()];
  }
}

const inUse: Signal<Collection[]> = signal([]);
const collections = new Map<string, Collection>();
const keyOf = (kind: Kind, namespace: string) => `${path(kind)} ${kind.namespaced ? namespace : ""}`;

/** Returns the one collection of a kind in a namespace; "" is all of them. */
export function collection(kind: Kind, namespace = ""): Collection {
  const key = keyOf(kind, namespace);
  let c = collections.get(key);
  if (!c) collections.set(key, (c = new Collection(kind, kind.namespaced ? namespace : "")));
  return c;
}

/** The collections that are in use, for the sign that says whether the page is live. */
export const states = () => inUse.value.map((c) => c.state.value);
