// Resource use from metrics.k8s.io, which has no watch: it is asked every 15 seconds, as often as it measures, while somebody looks.

import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Failed, get } from "./api";
import { quantity } from "./format";
import type { Sample } from "./ui/Chart";

export interface Use {
  cpu: Sample[];
  memory: Sample[];
}

const longest = 240; // samples: an hour
const period = 15_000;

class Source {
  readonly uses = signal<ReadonlyMap<string, Use>>(new Map());
  readonly missing = signal("");
  private users = 0;
  private timer = 0;

  constructor(readonly path: string) {}

  use(): () => void {
    if (this.users++ === 0) void this.ask();
    return () => {
      if (--this.users === 0) clearTimeout(this.timer);
    };
  }

  private async ask() {
    try {
      const answer = await get<any>(this.path);
      this.take(answer.items ?? [answer]);
      this.missing.value = "";
    } catch (e) {
      const code = e instanceof Failed ? e.code : 0;
      this.missing.value = code === 403 ? "Your account may not see resource use." : code === 404 || code === 503 ? "Resource use is not there yet; the add-on metrics-server measures it." : (e as Error).message;
    }
    if (this.users > 0) this.timer = window.setTimeout(() => this.ask(), period);
  }

  private take(items: any[]) {
    const next = new Map<string, Use>();
    const sum = (item: any, what: string) =>
      item.usage ? quantity(item.usage[what]) : ((item.containers ?? []) as any[]).reduce((n, c) => n + quantity(c.usage[what]), 0);
    for (const item of items) {
      const key = item.metadata.namespace ? `${item.metadata.namespace}/${item.metadata.name}` : item.metadata.name;
      const before = this.uses.value.get(key);
      const at = Date.parse(item.timestamp);
      const add = (samples: Sample[] = [], value: number) => (samples.at(-1)?.at === at ? samples : [...samples.slice(1 - longest), { at, value }]);
      next.set(key, { cpu: add(before?.cpu, sum(item, "cpu")), memory: add(before?.memory, sum(item, "memory")) });
    }
    this.uses.value = next;
  }
}

const sources = new Map<string, Source>();

/** Use by the name of the node, or by NAMESPACE/NAME of the pod. */
export function useMetrics(what: "nodes" | "pods" | `namespaces/${string}/pods` | `namespaces/${string}/pods/${string}`) {
  let source = sources.get(what);
  if (!source) sources.set(what, (source = new Source(`/apis/metrics.k8s.io/v1beta1/${what}`)));
  useEffect(() => source.use(), [source]);
  return { uses: source.uses.value, missing: source.missing.value };
}

export const latest = (samples: Sample[] | undefined) => samples?.at(-1)?.value ?? 0;

/** The sum over several, sample by sample from the newest on. */
export function total(all: Sample[][]): Sample[] {
  const longestOne = all.reduce((a, b) => (b.length > a.length ? b : a), []);
  return longestOne.map((s, i) => {
    const fromEnd = longestOne.length - i;
    return { at: s.at, value: all.reduce((n, one) => n + (one.at(-fromEnd)?.value ?? one[0]?.value ?? 0), 0) };
  });
}
