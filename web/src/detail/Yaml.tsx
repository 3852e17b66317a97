// Objects as YAML: looked at, changed and made. Every change is tried by the API server first, and shown as a diff.

import { diffLines } from "diff";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { parse, parseAllDocuments, stringify } from "yaml";
import { type Obj, Failed, get, write } from "../api";
import { can } from "../can";
import { type Kind, path } from "../kinds";
import { go, namespace, say } from "../state";
import { Card } from "../ui/parts";
import { Editor } from "./Editor";

function text(o: Obj | undefined): string {
  if (!o) return "";
  const { apiVersion, kind, metadata, ...rest } = structuredClone(o);
  delete metadata.managedFields;
  return stringify({ apiVersion, kind, metadata, ...rest }, { lineWidth: 0 });
}

interface Change {
  title: string;
  before: string;
  after: string;
  apply: () => Promise<unknown>;
}

export function ObjectYaml({ kind, object, saved }: { kind: Kind; object: Obj; saved: () => void }) {
  const { name, namespace } = object.metadata;
  const [base, setBase] = useState(object); // what is edited does not change under the user's hands
  const [editing, setEditing] = useState(false);
  const edited = useRef("");
  const may = can("update", kind, namespace, name);
  useEffect(() => {
    if (!editing) setBase(object);
  }, [object, editing]);
  const current = useMemo(() => text(base), [base]);
  const review = async (): Promise<Change[]> => {
    const wanted = parse(edited.current) as Obj;
    const put = (dry: string) => write<Obj>("PUT", path(kind, namespace, name) + dry, wanted);
    const result = await put("?dryRun=All");
    return [{ title: `${kind.kind} ${name}`, before: current, after: text(result), apply: () => put("") }];
  };
  return (
    <Reviewed verb="Save" offered={editing} review={review}
      bar={editing ? <button type="button" onClick={() => setEditing(false)}>Discard</button> : may ? <button type="button" onClick={() => { edited.current = current; setEditing(true); }}>Edit</button> : may === false && <span class="faint">You may look at this, but not change it.</span>}
      done={() => { setEditing(false); saved(); say(`${name} is saved.`); }}>
      <Editor key={String(editing)} label={`YAML of ${name}`} value={current} readOnly={!editing} change={(t) => (edited.current = t)} />
    </Reviewed>
  );
}

const template = (space: string) => `apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: ${space}
spec:
  replicas: 2
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      containers:
        - name: web
          image: docker.io/library/nginx:1
          ports:
            - containerPort: 80
`;

/** Makes or changes objects from YAML, as kubectl apply --server-side does. */
export function Create() {
  const start = useMemo(() => template(namespace.value || "default"), []);
  const edited = useRef(start);
  const review = async (): Promise<Change[]> => {
    const changes: Change[] = [];
    for (const doc of parseAllDocuments(edited.current)) {
      if (doc.errors.length) throw doc.errors[0];
      const o = doc.toJS() as Obj | null;
      if (!o) continue;
      const where = await resolve(o);
      const before = await get(where).catch((e) => { if (e instanceof Failed && e.code === 404) return undefined; throw e; });
      const apply = (dry: string) => write<Obj>("PATCH", `${where}?fieldManager=coracle-dashboard${dry}`, JSON.stringify(o), "application/apply-patch+yaml");
      const result = await apply("&dryRun=All");
      changes.push({ title: `${o.kind} ${o.metadata.name}${before ? "" : ", new"}`, before: text(before), after: text(result), apply: () => apply("") });
    }
    if (changes.length === 0) throw new Error("There is no object in it.");
    return changes;
  };
  return (
    <Card title="Apply YAML" class="fill">
      <Reviewed verb="Apply" offered review={review} bar={<span class="faint">Nothing changes before you have seen the difference.</span>} done={() => { say("Applied."); go("#/workloads"); }}>
        <Editor label="YAML to apply" value={start} readOnly={false} change={(t) => (edited.current = t)} />
      </Reviewed>
    </Card>
  );
}

/** Where the API has an object, by its kind. */
async function resolve(o: Obj): Promise<string> {
  if (!o.apiVersion || !o.kind || !o.metadata?.name) throw new Error("An object needs apiVersion, kind and metadata.name.");
  const base = o.apiVersion.includes("/") ? `/apis/${o.apiVersion}` : `/api/${o.apiVersion}`;
  const resources = (await get<any>(base)).resources as { name: string; kind: string; namespaced: boolean }[];
  const found = resources.find((r) => r.kind === o.kind && !r.name.includes("/"));
  if (!found) throw new Error(`This cluster has no ${o.kind} in ${o.apiVersion}.`);
  const [group, version] = o.apiVersion.includes("/") ? o.apiVersion.split("/") : ["", o.apiVersion];
  return path({ group, version, plural: found.name, kind: o.kind, namespaced: found.namespaced }, o.metadata.namespace ?? (namespace.value || "default"), o.metadata.name);
}

interface Props {
  verb: string;
  offered: boolean;
  review: () => Promise<Change[]>;
  bar: any;
  done: () => void;
  children: any;
}

/** An editor whose text goes to the API only after the user has seen what the API would make of it. */
function Reviewed({ verb, offered, review, bar, done, children }: Props) {
  const [changes, setChanges] = useState<Change[]>();
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const attempt = async (what: () => Promise<void>) => {
    setBusy(true);
    setError("");
    try {
      await what();
    } catch (e) {
      const stale = e instanceof Failed && e.code === 409;
      setError(`${(e as Error).message}${stale ? " Discard your edit, and begin again with what is there now." : ""}`);
    }
    setBusy(false);
  };
  const save = () =>
    attempt(async () => {
      for (const c of changes!) await c.apply();
      setChanges(undefined);
      done();
    });
  return (
    <div class="yaml">
      <div class="bar">
        {changes ? <button type="button" onClick={() => setChanges(undefined)}>Back to the text</button> : bar}
        {offered && !changes && <button type="button" class="solid" disabled={busy} onClick={() => attempt(async () => setChanges(await review()))}>Review the change</button>}
        {changes && <button type="button" class="solid" disabled={busy} onClick={save}>{verb}</button>}
      </div>
      {error && <p class="note bad" role="alert">{error}</p>}
      <div hidden={!!changes} class="yaml-text">{children}</div>
      {changes?.map((c) => <Diff key={c.title} change={c} />)}
    </div>
  );
}

function Diff({ change: c }: { change: Change }) {
  const parts = useMemo(() => diffLines(c.before, c.after), [c]);
  const changed = parts.some((p) => p.added || p.removed);
  return (
    <section class="diff" aria-label={`Difference of ${c.title}`}>
      <h3>{c.title}</h3>
      {!changed && <p class="note">The API server would change nothing.</p>}
      <pre tabIndex={0}>
        {parts.map((p, i) => {
          const lines = p.value.replace(/\n$/, "").split("\n");
          if (!p.added && !p.removed && lines.length > 7) {
            const head = i === 0 ? [] : lines.slice(0, 3);
            const tail = i === parts.length - 1 ? [] : lines.slice(-3);
            return [...head.map((l) => `  ${l}\n`), <span class="faint">{`  … ${lines.length - head.length - tail.length} equal lines\n`}</span>, ...tail.map((l) => `  ${l}\n`)];
          }
          const sign = p.added ? "+ " : p.removed ? "- " : "  ";
          const block = lines.map((l) => `${sign}${l}\n`).join("");
          return p.added ? <ins key={i}>{block}</ins> : p.removed ? <del key={i}>{block}</del> : block;
        })}
      </pre>
    </section>
  );
}
