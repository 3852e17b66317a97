// One object: what it is, what happens with it, and what can be done.

import { useEffect, useMemo, useState } from "preact/hooks";
import { type Obj, Failed, get } from "../api";
import { can } from "../can";
import { counts, nodeHealth, podHealth, workloadHealth } from "../health";
import { type Kind, kinds, link, list, path } from "../kinds";
import { go, kindOf, useList, where } from "../state";
import { collection } from "../watch";
import { Badge, Fence, Note } from "../ui/parts";
import { Actions } from "./Actions";
import { lazy } from "./lazy";
import { Logs } from "./Logs";
import { Summary } from "./Summary";
import { EventRows, lastSeen } from "../views/Events";

const Yaml = lazy(() => import("./Yaml").then((m) => m.ObjectYaml));
const Terminal = lazy(() => import("./Terminal").then((m) => m.Terminal));

/** The live object: from the list of its kind where the page has that anyway, else read once. */
function useObject(kind: Kind, namespace: string, name: string) {
  const known = list.includes(kind);
  const c = collection(kind, namespace);
  useEffect(() => (known ? c.use() : undefined), [c]);
  const [read, setRead] = useState<{ object?: Obj; error?: string }>({});
  const again = () => {
    get(path(kind, namespace, name)).then(
      (object) => setRead({ object: { ...object, kind: object.kind ?? kind.kind } }),
      (e) => setRead({ error: e instanceof Failed && e.code === 404 ? `There is no ${kind.kind} ${name} any more.` : (e as Error).message }),
    );
  };
  useEffect(again, [kind, namespace, name]);
  const live = known ? c.items.value.find((o) => o.metadata.name === name) : undefined;
  const gone = known && c.state.value === "live" && !live;
  return { object: live ?? (gone ? undefined : read.object), error: gone ? `There is no ${kind.kind} ${name} any more.` : read.error, again };
}

export function Detail() {
  const [, group, version, pluralName, space, name, tab = "overview"] = where.value;
  const namespace = space === "-" ? "" : space;
  const kind = useMemo(() => kindOf(group, version, pluralName), [group, version, pluralName]);
  const { object: o, error, again } = useObject(kind, namespace, name);
  const tabs = ["overview", ...(kind === kinds.pods ? ["logs", "terminal"] : []), "events", "yaml"];
  const allowed = (t: string) =>
    t === "logs" ? can("get", kind, namespace, name, "log") !== false : t === "terminal" ? can("create", kind, namespace, name, "exec") !== false : true;
  useEffect(() => {
    document.title = `${name} · coracle`;
  }, [name]);
  if (error && !o) return <Note>{error} <a href={`#/${listOf(kind)}`}>Back to the list</a></Note>;
  if (!o) return <Note>Loading {kind.kind} {name}…</Note>;
  const health = kind === kinds.pods ? podHealth(o) : kind === kinds.nodes ? nodeHealth(o) : counts(o) || kind === kinds.cronjobs ? workloadHealth(o) : undefined;
  return (
    <article class="detail">
      <header class="detail-head">
        <div>
          <p class="crumbs">
            <a href={`#/${listOf(kind)}`}>{kind.kind}</a>
            {namespace && <span> in {namespace}</span>}
          </p>
          <h1>{name} {health && <Badge health={health} />}</h1>
        </div>
        <Actions kind={kind} object={o} />
      </header>
      <div class="tabs" role="tablist" aria-label="Views of this object" onKeyDown={arrows}>
        {tabs.map((t) => (
          <button type="button" role="tab" id={`tab-${t}`} aria-selected={t === tab} aria-controls="tab-panel" tabIndex={t === tab ? 0 : -1} disabled={!allowed(t)}
            title={allowed(t) ? undefined : "Your account may not do this"} onClick={() => go(link(kind, namespace, name, t))}>
            {t === "yaml" ? "YAML" : t[0].toUpperCase() + t.slice(1)}
          </button>
        ))}
      </div>
      <div role="tabpanel" id="tab-panel" class={`panel panel-${tab}`} aria-labelledby={`tab-${tab}`}>
        <Fence at={`${o.metadata.uid} ${tab}`}>
          {tab === "overview" && <Summary kind={kind} object={o} />}
          {tab === "logs" && <Logs key={o.metadata.uid} pod={o} />}
          {tab === "terminal" && <Terminal key={o.metadata.uid} pod={o} />}
          {tab === "events" && <ObjectEvents object={o} />}
          {tab === "yaml" && <Yaml key={o.metadata.uid} kind={kind} object={o} saved={again} />}
        </Fence>
      </div>
    </article>
  );
}

function arrows(e: KeyboardEvent) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
  if (!step) return;
  const all = [...(e.currentTarget as HTMLElement).querySelectorAll<HTMLButtonElement>("button:not([disabled])")];
  const next = all[(all.indexOf(document.activeElement as HTMLButtonElement) + step + all.length) % all.length];
  next.focus();
  next.click();
}

function listOf(kind: Kind): string {
  if (kind === kinds.nodes) return "nodes";
  if (kind === kinds.pods) return "pods";
  if (kind.plural === "services" || kind.group.includes("networking")) return "network";
  if (kind.group === "apps" || kind.group === "batch") return "workloads";
  return "addons";
}

export function ObjectEvents({ object: o }: { object: Obj }) {
  const events = useList(kinds.events, o.metadata.namespace ?? "");
  const mine = events.items
    .filter((e) => e.involvedObject?.uid === o.metadata.uid || (e.involvedObject?.kind === o.kind && e.involvedObject?.name === o.metadata.name && e.involvedObject?.namespace === o.metadata.namespace))
    .sort((a, b) => lastSeen(b).localeCompare(lastSeen(a)));
  if (events.state === "denied") return <Note>Your account may not see events here.</Note>;
  return mine.length ? <EventRows events={mine} /> : <Note>Nothing was reported of it in the last hour.</Note>;
}
