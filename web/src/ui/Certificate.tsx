// Certificates of what leads in, and how long they last. The page cannot read their Secrets: the command tells it names and dates.

import { useEffect, useState } from "preact/hooks";
import { type Obj, get, many } from "../api";
import { when } from "../format";
import { Badge } from "./parts";

interface Certificate {
  subject: string;
  issuer: string;
  names: string[];
  notAfter: string;
}

/** Whether a name, or wildcard, is below another one or the same. No name is any. */
const meets = (a?: string, b?: string): boolean => !a || !b || a === b || (a.startsWith("*.") && b.endsWith(a.slice(1))) || (b.startsWith("*.") && a.endsWith(b.slice(1)));

/** The names of the Secrets, in the namespace of the object that names them, of some listeners. */
function ofListeners(owner: Obj, serves = (_: any) => true): string[] {
  const refs = many(owner.spec?.listeners).filter(serves).flatMap((l) => many(l.tls?.certificateRefs));
  return refs.filter((r) => !r.namespace || r.namespace === owner.metadata.namespace).map((r) => `${owner.metadata.namespace}/${r.name}`);
}

/** The Secrets, as namespace/name, with which clients are answered at a Gateway, a ListenerSet, an Ingress, or a route that is attached to some of the parents. */
export function secrets(o: Obj, parents: Obj[]): string[] {
  const all = o.spec?.listeners ? ofListeners(o) : many(o.spec?.tls).filter((t) => t.secretName).map((t) => `${o.metadata.namespace}/${t.secretName}`);
  const names = many(o.spec?.hostnames);
  for (const ref of o.spec?.listeners ? [] : many(o.spec?.parentRefs)) {
    const parent = parents.find((p) => p.kind === (ref.kind ?? "Gateway") && p.metadata.name === ref.name && p.metadata.namespace === (ref.namespace ?? o.metadata.namespace));
    const serves = (l: any) =>
      (!ref.sectionName || ref.sectionName === l.name) && (!ref.port || ref.port === l.port) && (names.length === 0 || names.some((n) => meets(n, l.hostname)));
    if (parent) all.push(...ofListeners(parent, serves));
  }
  return [...new Set(all)];
}

/** Certificates of Secrets, with the days that they have left. */
export function Certificates({ of }: { of: string[] }) {
  return <>{of.map((s) => <One key={s} secret={s} />)}</>;
}

function One({ secret }: { secret: string }) {
  const [found, setFound] = useState<Certificate | string>();
  useEffect(() => {
    get<Certificate>(`/certificates/${secret.split("/").map(encodeURIComponent).join("/")}`).then(setFound, (e) => setFound((e as Error).message));
  }, [secret]);
  if (!found) return null;
  if (typeof found === "string") return <span class="faint" title={found}>certificate {secret.split("/")[1]}: not to be seen</span>;
  const days = Math.floor((Date.parse(found.notAfter) - Date.now()) / 86_400_000);
  return (
    <span title={`${(found.names ?? []).join(", ")}; issued by ${found.issuer}; until ${when(found.notAfter)}`}>
      <Badge health={{ tone: days < 0 ? "bad" : days < 21 ? "busy" : "good", text: days < 0 ? "certificate expired" : `certificate: ${days} days left` }} />
    </span>
  );
}
