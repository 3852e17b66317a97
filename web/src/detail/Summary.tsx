// What an object is, in a glance, and what belongs to it.

import type { ComponentChildren } from "preact";
import { type Obj, many } from "../api";
import { bytes, cores, quantity, when } from "../format";
import { type Health, counts, podHealth, restarts, roles, selects } from "../health";
import { type Kind, kinds, link } from "../kinds";
import { latest, useMetrics } from "../metrics";
import { backends, hosts } from "../picture/layout";
import { kindNamed, owner, useList } from "../state";
import { Certificates, secrets } from "../ui/Certificate";
import { Chart } from "../ui/Chart";
import { Age, Badge, Card, Links, Note } from "../ui/parts";
import { ObjectEvents } from "./Detail";

type Fact = [string, ComponentChildren];

export function Summary({ kind, object: o }: { kind: Kind; object: Obj }) {
  const facts: Fact[] = [["Created", <>{when(o.metadata.creationTimestamp)} (<Age from={o.metadata.creationTimestamp} /> ago)</>], ...factsOf(kind, o)];
  const up = owner(o);
  if (up) {
    const k = kindNamed(up.kind);
    facts.push(["Belongs to", k ? <a href={link(k, o.metadata.namespace, up.name)}>{up.kind} {up.name}</a> : `${up.kind} ${up.name}`]);
  }
  const labels = Object.entries(o.metadata.labels ?? {});
  return (
    <div class="summary">
      <Card title="What it is">
        <dl>
          {facts.filter(([, v]) => v || v === 0).map(([k, v]) => (
            <div key={k}><dt>{k}</dt><dd>{v}</dd></div>
          ))}
        </dl>
        {labels.length > 0 && <ul class="labels" aria-label="Labels">{labels.map(([k, v]) => <li key={k}>{k}={v}</li>)}</ul>}
      </Card>
      {kind === kinds.pods && <PodUse pod={o} />}
      {kind === kinds.nodes && <NodeUse node={o} />}
      {kind === kinds.pods && <Containers pod={o} />}
      {(counts(o) || kind === kinds.services || kind === kinds.nodes) && <PodsOf kind={kind} object={o} />}
      <Conditions object={o} />
      <Card title="Events"><ObjectEvents object={o} /></Card>
    </div>
  );
}

function factsOf(kind: Kind, o: Obj): Fact[] {
  const s = o.status ?? {};
  switch (kind) {
    case kinds.pods:
      return [
        ["Node", o.spec?.nodeName && <a href={link(kinds.nodes, undefined, o.spec.nodeName)}>{o.spec.nodeName}</a>],
        ["Address", ((s.podIPs ?? []) as any[]).map((i) => i.ip).join(", ")],
        ["Restarts", restarts(o)], ["Service account", o.spec?.serviceAccountName], ["Priority class", o.spec?.priorityClassName], ["Quality of service", s.qosClass],
      ];
    case kinds.nodes:
      return [
        ["Role", roles(o) || "agent"], ["Version", s.nodeInfo?.kubeletVersion], ["System", s.nodeInfo?.osImage], ["Kernel", s.nodeInfo?.kernelVersion],
        ["Container runtime", s.nodeInfo?.containerRuntimeVersion], ["Addresses", ((s.addresses ?? []) as any[]).map((a) => a.address).join(", ")], ["Pod network", (o.spec?.podCIDRs ?? []).join(", ")],
        ["Taints", ((o.spec?.taints ?? []) as any[]).map((t) => `${t.key}:${t.effect}`).join(", ")],
      ];
    case kinds.services:
      return [
        ["Type", o.spec?.type], ["Cluster address", (o.spec?.clusterIPs ?? []).join(", ")], ["Outside address", ((s.loadBalancer?.ingress ?? []) as any[]).map((i) => i.ip ?? i.hostname).join(", ")],
        ["Ports", ((o.spec?.ports ?? []) as any[]).map((p) => `${p.name ? `${p.name} ` : ""}${p.port} → ${p.targetPort}/${p.protocol}`).join(", ")],
        ["Selector", Object.entries(o.spec?.selector ?? {}).map(([k, v]) => `${k}=${v}`).join(", ")],
      ];
    case kinds.cronjobs:
      return [["Schedule", o.spec?.schedule], ["Last started", s.lastScheduleTime && when(s.lastScheduleTime)]];
  }
  if (kind === kinds.gateways || kind === kinds.listenersets) {
    return [
      ["Class", o.spec?.gatewayClassName], ["Addresses", many(s.addresses).map((a) => a.value).join(", ")],
      ["Listeners", <>{many(o.spec?.listeners).map((l) => <div key={l.name}>{`${l.name}: ${l.protocol} ${l.hostname ?? "any host"}:${l.port}`}</div>)}</>],
      ["Certificates", certificates(o)],
    ];
  }
  if (kind === kinds.ingresses || o.spec?.parentRefs) {
    return [
      ["Hosts", hosts(o).join(", ")], ["Attached to", parents(o)], ["Certificates", certificates(o)],
      ["Leads to", backends(o).length > 0 && <Links to={backends(o).map((b) => ({ text: b, href: link(kinds.services, o.metadata.namespace, b) }))} />],
    ];
  }
  const n = counts(o);
  const containers = (o.spec?.template?.spec?.containers ?? []) as any[];
  return n ? [["Pods", `${n.have} of ${n.want}`], ["Images", containers.map((c) => c.image).join(", ")], ["Update strategy", o.spec?.strategy?.type ?? o.spec?.updateStrategy?.type]] : [];
}

function certificates(o: Obj): ComponentChildren {
  const of = secrets(o, []);
  return of.length > 0 && <Certificates of={of} />;
}

/** What a route is attached to. */
function parents(o: Obj): ComponentChildren {
  const refs = many(o.spec?.parentRefs).map((p) => ({ name: String(p?.name), space: p?.namespace ?? o.metadata.namespace, kind: kindNamed(p?.kind ?? "Gateway") }));
  return refs.length > 0 && <Links to={refs.map((p) => ({ text: p.name, href: p.kind && link(p.kind, p.space, p.name) }))} />;
}

function Containers({ pod }: { pod: Obj }) {
  const all: any[] = [...(pod.spec?.initContainers ?? []).map((c: any) => ({ ...c, init: true })), ...(pod.spec?.containers ?? [])];
  const states: any[] = [...(pod.status?.initContainerStatuses ?? []), ...(pod.status?.containerStatuses ?? [])];
  return (
    <Card title="Containers">
      <ul class="plain">
        {all.map((c) => {
          const state = states.find((s) => s.name === c.name);
          return (
            <li key={c.name}>
              <strong>{c.name}</strong> {c.init && <span class="faint">init</span>} <Badge health={containerHealth(state)} />
              <span class="faint">{c.image}</span>
              {state?.lastState?.terminated && <span class="faint">before: {state.lastState.terminated.reason}, exit code {state.lastState.terminated.exitCode}, {when(state.lastState.terminated.finishedAt)}</span>}
              {state?.state?.waiting?.message && <span class="faint">{state.state.waiting.message}</span>}
            </li>
          );
        })}
      </ul>
    </Card>
  );
}

function containerHealth(s: any): Health {
  if (s?.state?.running) return s.ready ? { tone: "good", text: "Running" } : { tone: "busy", text: "Not ready" };
  if (s?.state?.terminated) return s.state.terminated.exitCode === 0 ? { tone: "done", text: "Completed" } : { tone: "bad", text: s.state.terminated.reason ?? "Failed" };
  const why = s?.state?.waiting?.reason;
  return { tone: /BackOff|Err/.test(why ?? "") ? "bad" : "busy", text: why ?? "Waiting" };
}

/** The pods that run on a node, or that a workload or a Service has. */
function PodsOf({ kind, object: o }: { kind: Kind; object: Obj }) {
  const space = o.metadata.namespace ?? ""; // not the one that is chosen: links lead elsewhere
  const { items: pods, state } = useList(kinds.pods, space);
  const sets = useList(kinds.replicasets, space).items;
  const owners = new Set([o.metadata.uid, ...(kind === kinds.deployments ? sets.filter((r) => owner(r)?.uid === o.metadata.uid).map((r) => r.metadata.uid) : [])]);
  const mine = pods.filter((p) => {
    if (kind === kinds.nodes) return p.spec?.nodeName === o.metadata.name;
    if (kind === kinds.services) return p.metadata.namespace === o.metadata.namespace && selects(o.spec?.selector, p.metadata.labels);
    return owners.has(owner(p)?.uid ?? "");
  });
  return (
    <Card title={state === "loading" ? "Pods" : `Pods (${mine.length})`}>
      {mine.length === 0 && <Note>{state === "loading" ? "Loading pods…" : "It has no pod."}</Note>}
      <ul class="plain rows">
        {mine.slice(0, 200).map((p) => (
          <li key={p.metadata.uid}>
            <a href={link(kinds.pods, p.metadata.namespace, p.metadata.name)}>{kind === kinds.nodes ? `${p.metadata.namespace}/` : ""}{p.metadata.name}</a>
            <Badge health={podHealth(p)} />
            <span class="faint">{kind === kinds.nodes ? "" : p.spec?.nodeName}</span>
            <span class="faint"><Age from={p.metadata.creationTimestamp} /></span>
          </li>
        ))}
      </ul>
    </Card>
  );
}

function Conditions({ object: o }: { object: Obj }) {
  const parts: [string, any][] = [["", o.status], ...many(o.status?.parents).map((p): [string, any] => [`at ${p?.parentRef?.name}: `, p]), ...many(o.status?.listeners).map((l): [string, any] => [`${l?.name}: `, l])];
  const all: any[] = parts.flatMap(([of, p]) => many(p?.conditions).map((c) => ({ ...c, of })));
  if (all.length === 0) return null;
  return (
    <Card title="Conditions">
      <ul class="plain conditions">
        {all.map((c, i) => (
          <li key={i}>
            <span>{c.of}<strong>{c.type}</strong> {c.status}{c.reason ? ` · ${c.reason}` : ""}</span>
            <span class="faint"><Age from={c.lastTransitionTime} /></span>
            {c.message && <span class="faint message">{c.message}</span>}
          </li>
        ))}
      </ul>
    </Card>
  );
}

function PodUse({ pod }: { pod: Obj }) {
  const { uses, missing } = useMetrics(`namespaces/${pod.metadata.namespace!}/pods/${pod.metadata.name}`);
  const use = uses.get(`${pod.metadata.namespace}/${pod.metadata.name}`);
  if (!use) return missing && podHealth(pod).tone === "good" ? <Card title="Resource use"><Note>{missing}</Note></Card> : null;
  const limit = (what: string) => ((pod.spec?.containers ?? []) as any[]).reduce((n, c) => n + quantity(c.resources?.limits?.[what]), 0);
  return (
    <Card title="Resource use" class="charts">
      <Chart label="CPU" samples={use.cpu} top={limit("cpu")} text={`${cores(latest(use.cpu))}${limit("cpu") ? ` of ${cores(limit("cpu"))}` : ""}`} />
      <Chart label="Memory" samples={use.memory} top={limit("memory")} text={`${bytes(latest(use.memory))}${limit("memory") ? ` of ${bytes(limit("memory"))}` : ""}`} />
    </Card>
  );
}

function NodeUse({ node }: { node: Obj }) {
  const { uses } = useMetrics("nodes");
  const use = uses.get(node.metadata.name);
  if (!use) return null;
  const room = node.status?.allocatable ?? {};
  return (
    <Card title="Resource use" class="charts">
      <Chart label="CPU" samples={use.cpu} top={quantity(room.cpu)} text={`${cores(latest(use.cpu))} of ${cores(quantity(room.cpu))} cores`} />
      <Chart label="Memory" samples={use.memory} top={quantity(room.memory)} text={`${bytes(latest(use.memory))} of ${bytes(quantity(room.memory))}`} />
    </Card>
  );
}
