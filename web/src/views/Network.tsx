// Services, and what leads to them from outside, with the certificates that it shows.

import { useMemo } from "preact/hooks";
import type { Obj } from "../api";
import { podHealth, selects } from "../health";
import { kinds, link } from "../kinds";
import { backends, hosts } from "../picture/layout";
import { kindNamed, namespace, useList, useRoutes } from "../state";
import { Certificates, secrets } from "../ui/Certificate";
import { Age, Badge, Card, Links, ListState, Note } from "../ui/parts";
import { type Column, Table } from "../ui/Table";
import { useFilter } from "./lists";

export function Network() {
  const services = useList(kinds.services);
  const pods = useList(kinds.pods).items;
  const ingresses = useList(kinds.ingresses);
  const gateways = useList(kinds.gateways);
  const sets = useList(kinds.listenersets).items;
  const routes = useRoutes();
  const byNamespace = useMemo(() => Map.groupBy(pods, (p) => p.metadata.namespace!), [pods]);
  const behind = (s: Obj) => (byNamespace.get(s.metadata.namespace!) ?? []).filter((p) => selects(s.spec?.selector, p.metadata.labels));
  const rows = useFilter(services.items, (s) => `${s.metadata.namespace}/${s.metadata.name} ${s.spec?.type} ${s.spec?.clusterIP} ${addresses(s)}`);
  const columns: Column<Obj>[] = [
    { title: "Name", width: "minmax(0, 1.6fr)", cell: (s) => s.metadata.name, by: (s) => s.metadata.name },
    ...(namespace.value ? [] : [{ title: "Namespace", width: "minmax(0, 1fr)", cell: (s: Obj) => s.metadata.namespace, by: (s: Obj) => `${s.metadata.namespace} ${s.metadata.name}`, wide: true }]),
    { title: "Type", width: "7.5rem", cell: (s) => s.spec?.type, by: (s) => s.spec?.type, wide: true },
    { title: "Address", width: "minmax(0, 1.4fr)", narrow: "8rem", cell: (s) => addresses(s) },
    { title: "Ports", width: "minmax(0, 1.2fr)", cell: (s) => ((s.spec?.ports ?? []) as any[]).map((p) => `${p.port}${p.nodePort ? `:${p.nodePort}` : ""}/${p.protocol}`).join(", "), wide: true },
    { title: "Pods", width: "5rem", narrow: "2.6rem", cell: (s) => { const b = behind(s); return s.spec?.selector ? `${b.filter((p) => podHealth(p).tone === "good").length}/${b.length}` : "–"; }, by: (s) => behind(s).length },
    { title: "Age", width: "4.5rem", cell: (s) => <Age from={s.metadata.creationTimestamp} />, by: (s) => -Date.parse(s.metadata.creationTimestamp), wide: true },
  ];
  const parents = [...gateways.items, ...sets];
  const ways = [...parents, ...ingresses.items, ...routes];
  return (
    <>
      <Card title="Ways in">
        {ways.length === 0 ? (
          <Note>There is no Ingress{gateways.state === "absent" ? "" : ", no Gateway and no route"} here.</Note>
        ) : (
          <ul class="ways-in">{ways.map((w) => <Way key={w.metadata.uid} o={w} parents={parents} />)}</ul>
        )}
      </Card>
      <Card title={`Services (${rows.length.toLocaleString("en")})`} class="fill">
        <ListState state={services.state} error={services.error} what="Services" />
        <Table label="Services" rows={rows} columns={columns} id={(s) => s.metadata.uid} href={(s) => link(kinds.services, s.metadata.namespace, s.metadata.name)} />
      </Card>
    </>
  );
}

function addresses(s: Obj): string {
  const outside = ((s.status?.loadBalancer?.ingress ?? []) as any[]).map((i) => i.ip ?? i.hostname);
  if (outside.length) return outside.join(", ");
  if (s.spec?.type === "LoadBalancer") return "pending";
  return s.spec?.clusterIP === "None" ? "headless" : (s.spec?.externalName ?? s.spec?.clusterIP ?? "–");
}

function Way({ o, parents }: { o: Obj; parents: Obj[] }) {
  const kind = kindNamed(o.kind!)!;
  const listens = o.spec?.listeners !== undefined; // a Gateway or a ListenerSet
  const outside = ((o.status?.loadBalancer?.ingress ?? o.status?.addresses ?? []) as any[]).map((a) => a.ip ?? a.hostname ?? a.value).join(", ");
  const names = listens ? ((o.spec?.listeners ?? []) as any[]).map((l) => `${l.hostname ?? "any host"}:${l.port}`) : hosts(o);
  return (
    <li>
      <span class="way-kind">{o.kind}</span>
      <a href={link(kind, o.metadata.namespace, o.metadata.name)}>{namespace.value ? o.metadata.name : `${o.metadata.namespace}/${o.metadata.name}`}</a>
      <span>{names.join(", ")}</span>
      <span class="faint">
        {!listens && <>→ <Links to={backends(o).map((b) => ({ text: b, href: link(kinds.services, o.metadata.namespace, b) }))} /> </>}
        {outside && <span>at {outside}</span>}
      </span>
      <span class="way-state">
        <Conditions o={o} />
        <Certificates of={secrets(o, parents)} />
      </span>
    </li>
  );
}

/** What is not as it should be, by the object's own conditions. */
function Conditions({ o }: { o: Obj }) {
  const parts: any[] = [o.status, ...(o.status?.parents ?? []), ...(o.status?.listeners ?? [])];
  const all: any[] = parts.flatMap((p) => p?.conditions ?? []);
  const wrong = all.filter((c) => ["Accepted", "Programmed", "ResolvedRefs"].includes(c.type) && c.status === "False");
  return <>{wrong.map((c) => <span key={c.type + c.reason} title={c.message}><Badge health={{ tone: "bad", text: `${c.type}: ${c.reason}` }} /></span>)}</>;
}
