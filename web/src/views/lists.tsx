// The views that are lists: nodes, workloads, pods.

import { useMemo } from "preact/hooks";
import type { Obj } from "../api";
import { bytes, cores, quantity } from "../format";
import { counts, nodeHealth, podHealth, restarts, roles, workloadHealth } from "../health";
import { kinds, link } from "../kinds";
import { latest, useMetrics } from "../metrics";
import { filter, kindNamed, namespace, owner, useList } from "../state";
import { Chart } from "../ui/Chart";
import { Age, Badge, Card, ListState, Meter } from "../ui/parts";
import { type Column, Table } from "../ui/Table";

const order = { bad: 0, busy: 1, leaving: 2, good: 3, done: 4 };

/** The rows whose text has all words of the filter. */
export function useFilter(rows: Obj[], text: (o: Obj) => string): Obj[] {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  return useMemo(() => (words.length ? rows.filter((r) => { const t = text(r).toLowerCase(); return words.every((w) => t.includes(w)); }) : rows), [rows, filter.value]);
}

const name: Column<Obj> = { title: "Name", width: "minmax(0, 2.4fr)", cell: (o) => o.metadata.name, by: (o) => o.metadata.name };
const space: Column<Obj> = { title: "Namespace", width: "minmax(0, 1.1fr)", cell: (o) => o.metadata.namespace, by: (o) => `${o.metadata.namespace} ${o.metadata.name}`, wide: true };
const since: Column<Obj> = { title: "Age", width: "4.5rem", narrow: "2.6rem", cell: (o) => <Age from={o.metadata.creationTimestamp} />, by: (o) => -Date.parse(o.metadata.creationTimestamp) };
const spaces = (): Column<Obj>[] => (namespace.value ? [] : [space]);

export function Pods() {
  const { items, state, error } = useList(kinds.pods);
  const { uses } = useMetrics(namespace.value ? `namespaces/${namespace.value}/pods` : "pods");
  const rows = useFilter(items, (p) => `${p.metadata.namespace}/${p.metadata.name} ${p.spec?.nodeName} ${podHealth(p).text} ${p.status?.podIP}`);
  const use = (p: Obj) => uses.get(`${p.metadata.namespace}/${p.metadata.name}`);
  const columns: Column<Obj>[] = [
    name,
    ...spaces(),
    { title: "State", width: "minmax(9.5rem, 1.2fr)", narrow: "7.2rem", cell: (p) => <Badge health={podHealth(p)} />, by: (p) => order[podHealth(p).tone] },
    { title: "Restarts", width: "5.5rem", cell: (p) => restarts(p) || <span class="faint">0</span>, by: restarts, wide: true },
    { title: "Node", width: "minmax(0, 1.1fr)", cell: (p) => (p.spec?.nodeName ? <a href={link(kinds.nodes, undefined, p.spec.nodeName)}>{p.spec.nodeName}</a> : "–"), by: (p) => p.spec?.nodeName ?? "", wide: true },
    { title: "CPU", width: "5rem", cell: (p) => (use(p) ? cores(latest(use(p)!.cpu)) : "–"), by: (p) => -latest(use(p)?.cpu), wide: true },
    { title: "Memory", width: "6rem", cell: (p) => (use(p) ? bytes(latest(use(p)!.memory)) : "–"), by: (p) => -latest(use(p)?.memory), wide: true },
    since,
  ];
  return (
    <Card title={`Pods (${rows.length.toLocaleString("en")})`} class="fill">
      <ListState state={state} error={error} what="pods" />
      <Table label="Pods" rows={rows} columns={columns} id={(p) => p.metadata.uid} href={(p) => link(kinds.pods, p.metadata.namespace, p.metadata.name)} />
    </Card>
  );
}

export function Workloads() {
  const lists = [useList(kinds.deployments), useList(kinds.statefulsets), useList(kinds.daemonsets), useList(kinds.jobs), useList(kinds.cronjobs)];
  const items = useMemo(() => lists.flatMap((l) => l.items).filter((o) => owner(o)?.kind !== "CronJob"), lists.map((l) => l.items));
  const rows = useFilter(items, (o) => `${o.kind} ${o.metadata.namespace}/${o.metadata.name} ${workloadHealth(o).text} ${images(o)}`);
  const columns: Column<Obj>[] = [
    name,
    ...spaces(),
    { title: "Kind", width: "7.5rem", cell: (o) => o.kind, by: (o) => `${o.kind} ${o.metadata.name}`, wide: true },
    { title: "State", width: "minmax(7.5rem, 1fr)", narrow: "7.2rem", cell: (o) => <Badge health={workloadHealth(o)} />, by: (o) => order[workloadHealth(o).tone] },
    { title: "Pods", width: "4rem", narrow: "2.6rem", cell: (o) => { const n = counts(o); return n ? `${n.have}/${n.want}` : "–"; }, by: (o) => counts(o)?.have ?? -1 },
    { title: "Image", width: "minmax(0, 1.8fr)", cell: (o) => <span class="faint" title={images(o)}>{images(o)}</span>, wide: true },
    since,
  ];
  return (
    <Card title={`Workloads (${rows.length.toLocaleString("en")})`} class="fill">
      <ListState state={lists[0].state} error={lists[0].error} what="Deployments" />
      <Table label="Workloads" rows={rows} columns={columns} id={(o) => o.metadata.uid} href={(o) => link(kindNamed(o.kind!)!, o.metadata.namespace, o.metadata.name)} />
    </Card>
  );
}

function images(o: Obj): string {
  const template = o.spec?.template ?? o.spec?.jobTemplate?.spec?.template;
  return ((template?.spec?.containers ?? []) as any[]).map((c) => c.image).join(", ");
}

export function Nodes() {
  const { items, state, error } = useList(kinds.nodes);
  const pods = useList(kinds.pods, "").items;
  const { uses, missing } = useMetrics("nodes");
  const rows = useFilter(items, (n) => `${n.metadata.name} ${roles(n)} ${nodeHealth(n).text}`).toSorted((a, b) => a.metadata.name.localeCompare(b.metadata.name, undefined, { numeric: true }));
  const byNode = useMemo(() => Map.groupBy(pods, (p) => p.spec?.nodeName), [pods]);
  return (
    <>
      <ListState state={state} error={error} what="nodes" />
      {missing && <p class="note">{missing}</p>}
      <div class="cards">
        {rows.map((n) => {
          const use = uses.get(n.metadata.name);
          const room = n.status?.allocatable ?? {};
          const mine = byNode.get(n.metadata.name) ?? [];
          const most = Number(room.pods ?? 110);
          return (
            <Card key={n.metadata.uid} title={<a href={link(kinds.nodes, undefined, n.metadata.name)}>{n.metadata.name}</a>} aside={<Badge health={nodeHealth(n)} />}>
              <p class="faint node-facts">
                {[roles(n) || "agent", n.status?.nodeInfo?.kubeletVersion, n.status?.nodeInfo?.architecture, n.status?.addresses?.find((a: any) => a.type === "InternalIP")?.address].filter(Boolean).join(" · ")}
              </p>
              {use && nodeHealth(n).tone !== "bad" && (
                <>
                  <Chart label="CPU" samples={use.cpu} top={quantity(room.cpu)} text={`${cores(latest(use.cpu))} of ${cores(quantity(room.cpu))} cores`} />
                  <Meter label="Memory" part={latest(use.memory)} whole={quantity(room.memory)} text={`${bytes(latest(use.memory))} of ${bytes(quantity(room.memory))}`} />
                </>
              )}
              <Meter label="Pods" part={mine.length} whole={most} text={`${mine.length} of ${most}`} />
            </Card>
          );
        })}
      </div>
    </>
  );
}
