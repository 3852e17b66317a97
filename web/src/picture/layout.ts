// Where everything in the picture of the cluster is. It is computed from the objects alone, so the same cluster looks the same.

import type { Obj } from "../api";
import { type Health, nodeHealth, podHealth, selects } from "../health";

export interface Box {
  x: number;
  y: number;
  w: number;
  h: number;
}
export interface PodDot {
  id: string;
  namespace: string;
  name: string;
  x: number;
  y: number;
  r: number;
  label: string; // "" if there is no room for one
  health: Health;
}
export interface NodeCard extends Box {
  id: string;
  name: string;
  health: Health;
  dots: PodDot[];
  pods: number;
  hidden: number;
}
export interface Chip extends Box {
  id: string;
  namespace: string;
  name: string;
  kind: "service" | "entry";
  object: Obj;
  detail: string;
  broken: boolean;
}
export interface Way {
  id: string;
  from: string; // chip
  to: string; // chip or dot
  d: string;
  flows: boolean;
}
export interface Layout {
  nodes: NodeCard[];
  waiting?: NodeCard;
  services: Chip[];
  entries: Chip[];
  ways: Way[];
  more: number; // services for which there is no room
  unit: number; // the size of text
}

export interface Input {
  nodes: Obj[];
  pods: Obj[];
  services: Obj[];
  entries: Obj[]; // Ingresses and routes
}

const mostDots = 240; // of a node

/** Arranges n cells in a box so that they are as large as can be. */
export function grid(n: number, box: Box, shape: number, gap: number): Box[] {
  let best = { columns: 1, size: 0 };
  for (let columns = 1; columns <= n; columns++) {
    const rows = Math.ceil(n / columns);
    const size = Math.min(box.w / columns / shape, box.h / rows);
    if (size > best.size) best = { columns, size };
  }
  const rows = Math.ceil(n / best.columns);
  const h = (box.h - gap * (rows - 1)) / rows;
  return Array.from({ length: n }, (_, i) => {
    const row = Math.floor(i / best.columns);
    const columns = row === rows - 1 ? n - row * best.columns : best.columns; // the last row is filled
    const w = (box.w - gap * (columns - 1)) / columns;
    return { x: box.x + (i % best.columns) * (w + gap), y: box.y + row * (h + gap), w, h };
  });
}

/** Places a node's pods in rows: with their names if there is room for them, else as large as they fit. */
export function pack(pods: Obj[], box: Box, unit: number): PodDot[] {
  const shown = pods.slice(0, mostDots);
  const wide = Math.floor(box.w / (unit * 6.6));
  const rows = Math.ceil(shown.length / wide);
  if (wide >= 2 && rows * unit * 3.7 <= box.h) {
    const pitch = box.w / wide;
    const top = box.y + (box.h - rows * unit * 3.7) / 2;
    return shown.map((p, i) => ({ ...dot(p, unit * 0.95, appOf(p)), x: box.x + ((i % wide) + 0.5) * pitch, y: top + unit * (1.2 + 3.7 * Math.floor(i / wide)) }));
  }
  let r = unit;
  const pitch = () => r * 2.7;
  while (r > 2 && Math.max(1, Math.floor(box.w / pitch())) * Math.floor(box.h / pitch()) < shown.length) r -= 0.25;
  const columns = Math.max(1, Math.floor(box.w / pitch()));
  return shown.map((p, i) => ({ ...dot(p, r, ""), x: box.x + ((i % columns) + 0.5) * pitch(), y: box.y + (Math.floor(i / columns) + 0.5) * pitch() }));
}

const dot = (p: Obj, r: number, label: string) => ({ id: p.metadata.uid, namespace: p.metadata.namespace!, name: p.metadata.name, r, label, health: podHealth(p) });

/** What a pod is for, in a word. */
function appOf(p: Obj): string {
  const labels = p.metadata.labels ?? {};
  return labels["app.kubernetes.io/name"] ?? labels.app ?? labels["k8s-app"] ?? p.metadata.name;
}

const byAge = (a: Obj, b: Obj) => a.metadata.creationTimestamp.localeCompare(b.metadata.creationTimestamp) || a.metadata.name.localeCompare(b.metadata.name);
const byName = (a: Obj, b: Obj) => a.metadata.name.localeCompare(b.metadata.name, undefined, { numeric: true });

/** The names of the Services that an Ingress or a route leads to. */
export function backends(o: Obj): string[] {
  const names: (string | undefined)[] = [o.spec?.defaultBackend?.service?.name];
  for (const rule of (o.spec?.rules ?? []) as any[]) {
    for (const p of rule.http?.paths ?? []) names.push(p.backend?.service?.name);
    for (const b of rule.backendRefs ?? []) names.push(b.name);
  }
  return [...new Set(names.filter((n): n is string => !!n))];
}

export function hosts(o: Obj): string[] {
  const names: string[] = o.spec?.hostnames ?? ((o.spec?.rules ?? []) as any[]).map((r) => r.host).filter(Boolean);
  if (names.length) return [...new Set(names)];
  return ["TCPRoute", "UDPRoute"].includes(o.kind!) ? [] : ["any host"];
}

export function arrange(input: Input, width: number, height: number): Layout {
  const unit = Math.min(20, Math.max(12, width / 105));
  const narrow = width < 720;
  const services = input.services.filter((s) => s.spec?.selector && s.spec.type !== "ExternalName").sort(byName);
  const left = narrow || services.length === 0 ? 0 : width * 0.4;
  const area = { x: left, y: unit * 0.4, w: width - left, h: height - unit * 0.8 };

  const nodes = [...input.nodes].sort(byName);
  const byNode = Map.groupBy([...input.pods].sort(byAge), (p) => p.spec?.nodeName ?? "");
  const known = new Set(nodes.map((n) => n.metadata.name));
  const lost = [...byNode].filter(([name]) => !known.has(name)).flatMap(([, pods]) => pods);
  if (lost.length) area.h -= unit * 7.2;
  // One node above the other, as long as there is room, so that no path crosses another node.
  const cells = grid(nodes.length, area, left > 0 && nodes.length * unit * 8 <= area.h ? 99 : 1.5, unit);
  const card = (id: string, name: string, health: Health, box: Box, pods: Obj[]): NodeCard => {
    const inner = { x: box.x + unit, y: box.y + unit * 2.3, w: box.w - 2 * unit, h: box.h - unit * 4.2 };
    return { ...box, id, name, health, pods: pods.length, hidden: Math.max(0, pods.length - mostDots), dots: pack(pods, inner, unit) };
  };
  const cards = nodes.map((n, i) => card(n.metadata.uid, n.metadata.name, nodeHealth(n), cells[i], byNode.get(n.metadata.name) ?? []));
  const waitingBox = { x: area.x, y: area.y + area.h + unit, w: area.w, h: unit * 6.6 };
  const waiting = lost.length ? card("waiting", "Waiting for a node", { tone: "busy", text: "" }, waitingBox, lost) : undefined;
  if (waiting) waiting.dots = pack(lost, { x: waitingBox.x + unit, y: waitingBox.y + unit * 2.5, w: waitingBox.w - 2 * unit, h: unit * (waiting.hidden ? 2.6 : 3.7) }, waiting.hidden ? unit * 0.62 : unit);

  const layout: Layout = { nodes: cards, waiting, services: [], entries: [], ways: [], more: 0, unit };
  if (left > 0) connect(layout, input, services, { x: 0, y: area.y, w: left, h: height - unit });
  return layout;
}

/** Adds Services, what leads to them, and the paths from there to the pods. */
function connect(l: Layout, input: Input, services: Obj[], box: Box) {
  const u = l.unit;
  const least = u * 3.3;
  const entries = input.entries.filter((e) => backends(e).length).sort(byName);
  const entered = new Set(entries.flatMap((e) => backends(e).map((b) => `${e.metadata.namespace}/${b}`)));
  const key = (o: Obj) => `${o.metadata.namespace}/${o.metadata.name}`;
  const rank = (s: Obj) => (entered.has(key(s)) ? 0 : s.spec.type !== "ClusterIP" ? 1 : s.metadata.namespace === "kube-system" ? 3 : 2);
  const room = Math.max(1, Math.floor(box.h / least));
  const shown = [...services].sort((a, b) => rank(a) - rank(b)).slice(0, room);
  l.more = services.length - shown.length;

  const dots = new Map([...l.nodes, ...(l.waiting ? [l.waiting] : [])].flatMap((n) => n.dots).map((d) => [d.id, d]));
  const podsOf = Map.groupBy(input.pods, (p) => p.metadata.namespace!);
  const w = box.w * (entries.length ? 0.37 : 0.52);
  const place = (n: number, i: number, x: number): Box => {
    const pitch = Math.min(box.h / n, u * 6);
    return { x, y: box.y + (box.h - n * pitch) / 2 + i * pitch + (pitch - u * 2.7) / 2, w, h: u * 2.7 };
  };
  const serviceX = entries.length ? box.w * 0.5 : box.w * 0.12;

  const chips = new Map<string, Chip>();
  shown.forEach((s, i) => {
    const targets = (podsOf.get(s.metadata.namespace!) ?? []).filter((p) => selects(s.spec.selector, p.metadata.labels) && podHealth(p).tone !== "done");
    const ready = targets.filter((p) => podHealth(p).tone === "good");
    const detail = `${s.spec.type === "ClusterIP" ? "" : `${s.spec.type} · `}${ready.length} of ${targets.length} pods`;
    const chip: Chip = { ...place(shown.length, i, serviceX), id: s.metadata.uid, namespace: s.metadata.namespace!, name: s.metadata.name, kind: "service", object: s, detail, broken: ready.length === 0 };
    chips.set(key(s), chip);
    l.services.push(chip);
    for (const p of targets.slice(0, 40)) {
      const dot = dots.get(p.metadata.uid);
      if (dot) l.ways.push(way(chip, dot.id, dot.x - dot.r, dot.y, podHealth(p).tone === "good"));
    }
  });
  const shownEntries = entries.slice(0, room);
  shownEntries.forEach((e, i) => {
    const targets = backends(e).map((b) => chips.get(`${e.metadata.namespace}/${b}`));
    const chip: Chip = {
      ...place(shownEntries.length, i, 0), id: e.metadata.uid, namespace: e.metadata.namespace!, name: hosts(e)[0], kind: "entry", object: e,
      detail: `${e.kind} ${e.metadata.name}`, broken: targets.every((t) => !t || t.broken),
    };
    l.entries.push(chip);
    for (const t of targets) if (t) l.ways.push(way(chip, t.id, t.x, t.y + t.h / 2, !t.broken));
  });
}

function way(from: Chip, to: string, x: number, y: number, flows: boolean): Way {
  const x0 = from.x + from.w;
  const y0 = from.y + from.h / 2;
  const bend = Math.max(24, (x - x0) * 0.5);
  const n = (v: number) => v.toFixed(1);
  return { id: `${from.id} ${to}`, from: from.id, to, flows, d: `M${n(x0)},${n(y0)}C${n(x0 + bend)},${n(y0)} ${n(x - bend)},${n(y)} ${n(x)},${n(y)}` };
}
