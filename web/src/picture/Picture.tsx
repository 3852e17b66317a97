// The live picture of the cluster: what leads in, Services, and nodes with their pods. Each node is a basin, and its water
// stands as high as its CPU is used.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Obj } from "../api";
import { percent, plural, quantity } from "../format";
import { kindNamed, useList, useRoutes } from "../state";
import { kinds, link } from "../kinds";
import { latest, useMetrics } from "../metrics";
import { type Chip, type Layout, type NodeCard, type Way, arrange } from "./layout";

export function Picture() {
  const box = useRef<HTMLDivElement>(null);
  const [size, setSize] = useState({ w: 0, h: 0 });
  const [hot, setHot] = useState("");
  const own = useList(kinds.nodes);
  const pods = useList(kinds.pods).items;
  const services = useList(kinds.services).items;
  const ingresses = useList(kinds.ingresses).items;
  const routes = useRoutes();
  useEffect(() => {
    const observer = new ResizeObserver(([e]) => setSize({ w: e.contentRect.width, h: e.contentRect.height }));
    observer.observe(box.current!);
    return () => observer.disconnect();
  }, []);
  // Who may not see nodes still sees where their pods are.
  const nodes = useMemo(
    () => (own.state === "denied" ? [...new Set(pods.map((p) => p.spec?.nodeName).filter(Boolean))].map((name): Obj => ({ metadata: { name, uid: name, creationTimestamp: "" } })) : own.items),
    [own.state, own.items, pods],
  );
  const alive = useMemo(() => pods.filter((p) => p.status?.phase !== "Succeeded"), [pods]);
  const layout = useMemo(
    () => (size.w > 0 ? arrange({ nodes, pods: alive, services, entries: [...ingresses, ...routes] }, size.w, size.h) : undefined),
    [nodes, alive, services, ingresses, routes, size],
  );
  const related = useMemo(() => (layout && hot ? reach(layout.ways, hot) : undefined), [layout, hot]);
  const summary = `${plural(nodes.length, "node")}, ${plural(alive.length, "pod")}, ${plural(services.length, "Service")}`;
  return (
    <div class={`picture ${related ? "focused" : ""}`} ref={box}>
      {layout && (
        <svg viewBox={`0 0 ${size.w} ${size.h}`} width={size.w} height={size.h} aria-label={`The cluster: ${summary}`} role="group" style={{ fontSize: `${layout.unit}px` }}>
          <Basins layout={layout} nodes={nodes} related={related} />
          <g class="ways" aria-hidden="true">
            {layout.ways.map((w) => (
              <g key={w.id} class={related && !(related.has(w.from) && related.has(w.to)) ? "dim" : related ? "hot" : ""}>
                <path class="way" d={w.d} />
                {w.flows && <path class="flow" d={w.d} />}
              </g>
            ))}
          </g>
          <Names layout={layout} />
          <Dots layout={layout} related={related} />
          {[...layout.entries, ...layout.services].map((c) => (
            <ChipView key={c.id} chip={c} unit={layout.unit} dim={!!related && !related.has(c.id)} heat={setHot} />
          ))}
          {layout.more > 0 && (
            <text class="faint" x={layout.services[0].x + layout.services[0].w} y={size.h - 2} text-anchor="end">
              and {plural(layout.more, "more Service")}
            </text>
          )}
        </svg>
      )}
    </div>
  );
}

/** Everything that is connected with one thing, in both directions. */
function reach(ways: Way[], start: string): Set<string> {
  const found = new Set([start]);
  const follow = (from: "from" | "to", to: "from" | "to") => {
    const front = [start];
    for (let id = front.pop(); id; id = front.pop())
      for (const w of ways)
        if (w[from] === id && !found.has(w[to])) {
          found.add(w[to]);
          front.push(w[to]);
        }
  };
  follow("from", "to");
  follow("to", "from");
  return found;
}

function Basins({ layout, nodes, related }: { layout: Layout; nodes: Obj[]; related?: Set<string> }) {
  const { uses } = useMetrics("nodes");
  const u = layout.unit;
  const basin = (n: NodeCard) => {
    const node = nodes.find((o) => o.metadata.uid === n.id);
    const use = uses.get(n.name);
    const cpu = use && latest(use.cpu) / quantity(node?.status?.allocatable?.cpu);
    const memory = use && latest(use.memory) / quantity(node?.status?.allocatable?.memory);
    const level = cpu === undefined || n.health.tone === "bad" ? 0 : Math.min(1, Math.max(0.04, cpu));
    const label = `${n.name}, ${n.health.text}, ${plural(n.pods, "pod")}`;
    const body = (
      <>
        <title>{label}</title>
        <rect class="basin" x={n.x} y={n.y} width={n.w} height={n.h} rx={u * 1.1} />
        {level > 0 && <Water node={n} level={level} unit={u} />}
        <text class="faint" x={n.x + n.w - u} y={n.y + u * 1.82} text-anchor="end">
          {["good", "done"].includes(n.health.tone) || n.id === "waiting" ? plural(n.pods, "pod") : n.health.text}
        </text>
        {use && n.health.tone !== "bad" && n.w > u * 13 && (
          <text class="faint" x={n.x + n.w - u} y={n.y + n.h - u * 0.8} text-anchor="end">
            CPU {percent(cpu!)} · memory {percent(memory!)}
          </text>
        )}
        {n.hidden > 0 && (
          <text class="faint" x={n.x + u} y={n.y + n.h - u * 0.8}>
            and {n.hidden} more
          </text>
        )}
      </>
    );
    const c = `node tone-${n.health.tone} ${related && !n.dots.some((d) => related.has(d.id)) ? "dim" : ""}`;
    if (n.id === "waiting") return <g key={n.id} class={`${c} waiting`}>{body}</g>;
    return (
      <a key={n.id} class={c} href={link(kinds.nodes, undefined, n.name)}>
        {body}
      </a>
    );
  };
  return <>{[...layout.nodes, ...(layout.waiting ? [layout.waiting] : [])].map(basin)}</>;
}

/** Names of nodes and pods lie over the paths, so that they can be read; the links that lead there have titles. */
function Names({ layout }: { layout: Layout }) {
  const u = layout.unit;
  return (
    <g class="names" aria-hidden="true">
      {[...layout.nodes, ...(layout.waiting ? [layout.waiting] : [])].map((n) => (
        <g key={n.id}>
          <circle class={`lamp tone-${n.health.tone}`} cx={n.x + u * 1.35} cy={n.y + u * 1.5} r={u * 0.34} />
          <text class="name" x={n.x + u * 2.1} y={n.y + u * 1.85}>{clip(n.name, (n.w - u * 7) / (u * 0.58))}</text>
          {n.dots.map((d) => d.label && <text key={d.id} class="faint" x={d.x} y={d.y + u * 2} text-anchor="middle">{clip(d.label, 13)}</text>)}
        </g>
      ))}
    </g>
  );
}

/** Water in a basin. It moves by one wave's length for ever. */
function Water({ node: n, level, unit: u }: { node: NodeCard; level: number; unit: number }) {
  const length = n.w / 2;
  const swell = Math.min(u * 0.28, n.h * 0.02);
  let d = `M${-length},0`;
  for (let x = -length; x < n.w + length; x += length) d += `q${length / 4},${-swell * 2} ${length / 2},0t${length / 2},0`;
  d += `V${n.h * 1.2}H${-length}Z`;
  const id = `basin-${n.id}`;
  return (
    <g clip-path={`url(#${id})`} aria-hidden="true">
      <clipPath id={id}>
        <rect x={n.x} y={n.y} width={n.w} height={n.h} rx={u * 1.1} />
      </clipPath>
      <g class="level" style={{ transform: `translate(${n.x}px, ${n.y + n.h * (1 - level)}px)` }}>
        <path class="water" d={d} style={{ "--length": `${length}px` } as any} />
      </g>
    </g>
  );
}

function Dots({ layout, related }: { layout: Layout; related?: Set<string> }) {
  const cards = layout.waiting ? [...layout.nodes, layout.waiting] : layout.nodes;
  return (
    <g class="pods">
      {cards.flatMap((n) =>
        n.dots.map((d) => (
          <a key={d.id} href={link(kinds.pods, d.namespace, d.name)} tabindex={-1} aria-hidden="true" class={`pod tone-${d.health.tone} ${n.health.tone === "bad" ? "adrift" : ""} ${related && !related.has(d.id) ? "dim" : ""}`}
            style={{ transform: `translate(${d.x}px, ${d.y}px)` }}>
            <title>{`${d.namespace}/${d.name}: ${d.health.text}`}</title>
            <circle class="halo" r={d.r * 1.32} />
            <circle class="body" r={d.r} />
            {d.health.tone === "bad" && <path class="mark" d={`M${-d.r * 0.4},${-d.r * 0.4}L${d.r * 0.4},${d.r * 0.4}M${d.r * 0.4},${-d.r * 0.4}L${-d.r * 0.4},${d.r * 0.4}`} />}
          </a>
        )),
      )}
    </g>
  );
}

function ChipView({ chip: c, unit: u, dim, heat }: { chip: Chip; unit: number; dim: boolean; heat: (id: string) => void }) {
  const kind = kindNamed(c.object.kind!)!;
  const letters = (c.w - u * 1.6) / (u * 0.56);
  return (
    <a class={`chip ${c.kind} ${c.broken ? "broken" : ""} ${dim ? "dim" : ""}`} href={link(kind, c.namespace, c.object.metadata.name)}
      onMouseEnter={() => heat(c.id)} onMouseLeave={() => heat("")} onFocus={() => heat(c.id)} onBlur={() => heat("")}>
      <title>{`${c.namespace}/${c.object.metadata.name}`}</title>
      <rect x={c.x} y={c.y} width={c.w} height={c.h} rx={c.h / 2} />
      <text class="name" x={c.x + u} y={c.y + u * 1.2}>{clip(c.name, letters)}</text>
      <text class="faint" x={c.x + u} y={c.y + u * 2.15}>{clip(c.detail, letters * 1.2)}</text>
    </a>
  );
}

const clip = (text: string, letters: number) => (text.length > letters ? `${text.slice(0, Math.max(1, Math.floor(letters) - 1))}…` : text);
