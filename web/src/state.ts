// What the whole page shares: where the user is, and how it looks.

import { computed, effect, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { Facts, Obj } from "./api";
import { type Kind, kinds, list } from "./kinds";
import { type State, collection } from "./watch";

export const facts = signal<Facts>({ version: "", context: "", namespace: "", server: "", readOnly: true, reports: [] });

// The route is in the address, so that back, reload and bookmarks work.
const route = signal(location.hash);
addEventListener("hashchange", () => (route.value = location.hash));
export const where = computed(() => {
  const parts = route.value.replace(/^#\/?/, "").split("/").filter(Boolean).map(decodeURIComponent);
  return parts.length ? parts : ["overview"];
});
export function go(hash: string) {
  location.hash = hash;
}

function stored(key: string, value: string) {
  const s = signal(localStorage.getItem(key) ?? value);
  effect(() => localStorage.setItem(key, s.value));
  return s;
}

export const namespace = stored("coracle.namespace", "");
export const theme = stored("coracle.theme", "auto");
const prefersLight = matchMedia("(prefers-color-scheme: light)");
const systemLight = signal(prefersLight.matches);
prefersLight.addEventListener("change", (e) => (systemLight.value = e.matches));
export const light = computed(() => theme.value === "light" || (theme.value === "auto" && systemLight.value));
effect(() => {
  document.documentElement.dataset.theme = light.value ? "light" : "dark";
});

export const filter = signal("");
effect(() => {
  where.value[0];
  filter.value = "";
});

/** The time, which moves once a second while somebody looks. */
export const now = signal(Date.now());
setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1000);

/** Says something to people who listen, and shows it for a moment. */
export const said = signal<{ text: string; bad?: boolean } | null>(null);
let quiet = 0;
export function say(text: string, bad = false) {
  said.value = { text, bad };
  clearTimeout(quiet);
  quiet = window.setTimeout(() => (said.value = null), bad ? 12_000 : 5_000);
}

/** Objects of a kind, live, in the namespace that the user looks at, or in another one; "" is all. */
export function useList(kind: Kind, space = namespace.value): { items: Obj[]; state: State; error: string } {
  const c = collection(kind, space);
  useEffect(() => c.use(), [c]);
  return { items: c.items.value, state: c.state.value, error: c.error.value };
}

/** Routes of all kinds of the Gateway API. */
export function useRoutes(): Obj[] {
  return [kinds.httproutes, kinds.grpcroutes, kinds.tlsroutes, kinds.tcproutes, kinds.udproutes].flatMap((k) => useList(k).items);
}

export function kindOf(group: string, version: string, plural: string): Kind {
  const known = list.find((k) => k.group === (group === "core" ? "" : group) && k.plural === plural);
  return known ?? { group: group === "core" ? "" : group, version, plural, kind: plural, namespaced: true };
}

export const owner = (o: Obj) => o.metadata.ownerReferences?.find((r) => r.controller);
export const kindNamed = (name: string): Kind | undefined => list.find((k) => k.kind === name);
