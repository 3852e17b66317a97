import { age, bytes, cores, percent, plural, quantity } from "../format";
import { nodeHealth, podHealth, workloadHealth } from "../health";
import { kinds } from "../kinds";
import { latest, total, useMetrics } from "../metrics";
import { Picture } from "../picture/Picture";
import { facts, now, useList, where } from "../state";
import { Chart } from "../ui/Chart";
import { Card, ListState } from "../ui/parts";
import { EventRows, useWarnings } from "./Events";

export function Overview() {
  const wall = where.value[0] === "wall";
  const nodes = useList(kinds.nodes);
  const warnings = useWarnings();
  return (
    <div class={wall ? "wall" : "overview"}>
      {wall && (
        <header class="wall-head">
          <h1>{facts.value.context || "The cluster"}</h1>
          <time>{new Date(now.value).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" })}</time>
        </header>
      )}
      <Figures />
      {nodes.state !== "denied" && <ListState state={nodes.state} error={nodes.error} what="nodes" />}
      <Picture />
      {!wall && warnings.length > 0 && (
        <Card title="Recent warnings" aside={<a href="#/events">All events</a>}>
          <EventRows events={warnings.slice(0, 4)} />
        </Card>
      )}
      {wall && warnings.length > 0 && (
        <p class="wall-warning">
          {age(warnings[0].lastTimestamp ?? warnings[0].metadata.creationTimestamp, now.value)} ago · {warnings[0].involvedObject?.kind} {warnings[0].involvedObject?.name}: {warnings[0].message}
        </p>
      )}
    </div>
  );
}

function Figures() {
  const { items: nodes, state } = useList(kinds.nodes);
  const { items: pods, state: podState } = useList(kinds.pods);
  const workloads = [...useList(kinds.deployments).items, ...useList(kinds.statefulsets).items, ...useList(kinds.daemonsets).items];
  const { uses, missing } = useMetrics("nodes");
  const ready = nodes.filter((n) => nodeHealth(n).tone !== "bad").length;
  const tones = Map.groupBy(pods.map((p) => podHealth(p).tone), (t) => t);
  const bad = tones.get("bad")?.length ?? 0;
  const busy = tones.get("busy")?.length ?? 0;
  const running = tones.get("good")?.length ?? 0;
  const healthy = workloads.filter((w) => ["good", "done"].includes(workloadHealth(w).tone)).length;
  const all = [...uses.values()];
  const cpu = total(all.map((u) => u.cpu));
  const memory = total(all.map((u) => u.memory));
  const room = (what: string) => nodes.reduce((n, o) => n + quantity(o.status?.allocatable?.[what]), 0);
  return (
    <div class="figures">
      <Figure title="Nodes" href="#/nodes" hidden={state === "denied"} value={ready} of={nodes.length} note={ready < nodes.length ? `${plural(nodes.length - ready, "node")} not ready` : "all ready"} bad={ready < nodes.length} />
      <Figure title="Pods" href="#/pods" hidden={podState === "denied"} value={running} of={pods.length - (tones.get("done")?.length ?? 0)} bad={bad > 0}
        note={bad ? `${bad.toLocaleString("en")} failing${busy ? `, ${busy.toLocaleString("en")} starting` : ""}` : busy ? `${busy.toLocaleString("en")} starting` : "all running"} />
      <Figure title="Workloads" href="#/workloads" hidden={podState === "denied"} value={healthy} of={workloads.length} note={healthy < workloads.length ? `${workloads.length - healthy} incomplete` : "all available"} bad={healthy < workloads.length} />
      {missing ? (
        <Card class="figure quiet"><p>{missing}</p></Card>
      ) : (
        <>
          <Card class="figure"><Chart label="CPU" samples={cpu} top={room("cpu")} text={`${percent(latest(cpu) / room("cpu"))} of ${cores(room("cpu"))} cores`} /></Card>
          <Card class="figure"><Chart label="Memory" samples={memory} top={room("memory")} text={`${bytes(latest(memory))} of ${bytes(room("memory"))}`} /></Card>
        </>
      )}
    </div>
  );
}

interface FigureProps {
  title: string;
  href: string;
  value: number;
  of: number;
  note: string;
  bad: boolean;
  hidden: boolean; // the account may not see it
}

function Figure({ title, href, value, of, note, bad, hidden }: FigureProps) {
  if (hidden)
    return (
      <a class="card figure" href={href}>
        <span class="figure-title">{title}</span>
        <span class="figure-value">–</span>
        <span class="faint">not to be seen</span>
      </a>
    );
  return (
    <a class={`card figure ${bad ? "bad" : ""}`} href={href}>
      <span class="figure-title">{title}</span>
      <span class="figure-value">
        {value.toLocaleString("en")}
        <small> / {of.toLocaleString("en")}</small>
      </span>
      <span class="figure-note">{of === 0 ? "none" : note}</span>
    </a>
  );
}
