import { useMemo } from "preact/hooks";
import type { Obj } from "../api";
import { kinds, link } from "../kinds";
import { filter, kindNamed, namespace, useList } from "../state";
import { Age, Card, ListState, Note } from "../ui/parts";

export const lastSeen = (e: Obj): string => e.series?.lastObservedTime ?? e.lastTimestamp ?? e.eventTime ?? e.metadata.creationTimestamp;
const newest = (a: Obj, b: Obj) => lastSeen(b).localeCompare(lastSeen(a));

export function useWarnings(): Obj[] {
  const { items } = useList(kinds.events);
  return useMemo(() => items.filter((e) => e.type === "Warning" && Date.now() - Date.parse(lastSeen(e)) < 3_600_000).sort(newest), [items]);
}

export function EventRows({ events }: { events: Obj[] }) {
  return (
    <ul class="events">
      {events.map((e) => (
        <li key={e.metadata.uid} class={e.type === "Warning" ? "warning" : ""}>
          <span class="event-time"><Age from={lastSeen(e)} /></span>
          <span class="event-what">
            <strong>{e.reason}</strong> <Subject event={e} />
            {(e.count ?? e.series?.count ?? 1) > 1 && <span class="faint"> × {e.count ?? e.series?.count}</span>}
          </span>
          <span class="event-text">{e.message ?? e.note}</span>
        </li>
      ))}
    </ul>
  );
}

function Subject({ event: e }: { event: Obj }) {
  const o = e.involvedObject ?? e.regarding;
  const kind = o && kindNamed(o.kind);
  const text = `${o?.kind} ${o?.namespace && !namespace.value ? `${o.namespace}/` : ""}${o?.name}`;
  return kind ? <a href={link(kind, o.namespace, o.name)}>{text}</a> : <span>{text}</span>;
}

export function Events() {
  const { items, state, error } = useList(kinds.events);
  const shown = useMemo(() => {
    const words = filter.value.toLowerCase();
    return items.filter((e) => !words || JSON.stringify([e.reason, e.message, e.involvedObject?.name, e.involvedObject?.kind, e.type]).toLowerCase().includes(words)).sort(newest);
  }, [items, filter.value]);
  return (
    <Card title="Events">
      <ListState state={state} error={error} what="events" />
      {state === "live" && shown.length === 0 && <Note>Nothing happened in the last hour.</Note>}
      <EventRows events={shown.slice(0, 300)} />
    </Card>
  );
}
