// Add-ons, backups, and this machine as coracle status and doctor see it.

import { useEffect, useState } from "preact/hooks";
import { type Obj, get } from "../api";
import { bytes, quantity, when } from "../format";
import type { Health } from "../health";
import { kinds, link } from "../kinds";
import { facts, useList } from "../state";
import { Age, Badge, Card, ListState, Note } from "../ui/parts";

const condition = (o: Obj, type: string) => (o.status?.conditions as any[] | undefined)?.find((c) => c.type === type);

export function Addons() {
  const charts = useList(kinds.charts, "");
  const apis = useList(kinds.apiservices, "");
  const storage = useList(kinds.storageclasses, "");
  const classes = [...useList(kinds.ingressclasses, "").items, ...useList(kinds.gatewayclasses, "").items];
  const aggregated = apis.items.filter((a) => !a.metadata.labels?.["kube-aggregator.kubernetes.io/automanaged"]);
  return (
    <>
      {facts.value.reports.includes("status") && <MachineAddons />}
      <Card title="Helm charts">
        <ListState state={charts.state} error={charts.error} what="Helm charts" />
        {charts.state === "live" && charts.items.length === 0 && <Note>No chart is installed through a HelmChart object.</Note>}
        <ul class="plain">
          {charts.items.map((c) => (
            <li key={c.metadata.uid}>
              <a href={link(kinds.charts, c.metadata.namespace, c.metadata.name)}>{c.metadata.name}</a> <Badge health={chartHealth(c)} />
              <span class="faint">{[c.spec?.chart, c.spec?.version, c.spec?.targetNamespace].filter(Boolean).join(" · ")}</span>
            </li>
          ))}
        </ul>
      </Card>
      <Card title="APIs that add-ons serve">
        <ListState state={apis.state} error={apis.error} what="APIServices" />
        <ul class="plain">
          {aggregated.map((a) => {
            const available = condition(a, "Available");
            return (
              <li key={a.metadata.uid}>
                <span>{a.metadata.name}</span> <Badge health={available?.status === "True" ? { tone: "good", text: "Available" } : { tone: "bad", text: available?.reason ?? "Unknown" }} />
                {available?.status !== "True" && <span class="faint">{available?.message}</span>}
              </li>
            );
          })}
        </ul>
      </Card>
      <Card title="Storage and entrances">
        <ListState state={storage.state} error={storage.error} what="StorageClasses" />
        <ul class="plain">
          {storage.items.map((s) => (
            <li key={s.metadata.uid}>
              <span>StorageClass {s.metadata.name}</span> <span class="faint">{s.provisioner}{s.metadata.annotations?.["storageclass.kubernetes.io/is-default-class"] === "true" ? " · default" : ""}</span>
            </li>
          ))}
          {classes.map((c) => (
            <li key={c.metadata.uid}>
              <span>{c.kind} {c.metadata.name}</span> <span class="faint">{c.spec?.controller ?? c.spec?.controllerName}</span>
            </li>
          ))}
        </ul>
      </Card>
    </>
  );
}

function chartHealth(c: Obj): Health {
  if (condition(c, "Failed")?.status === "True") return { tone: "bad", text: condition(c, "Failed").reason || "Failed" };
  return { tone: "good", text: "Installed" };
}

/** Loads a report of this machine, now and when asked. */
function useReport<T>(name: string): { report?: T; error: string; again: () => void; loading: boolean } {
  const [state, set] = useState<{ report?: T; error: string; loading: boolean }>({ error: "", loading: true });
  const again = () => {
    set((s) => ({ ...s, loading: true }));
    get<T>(`/reports/${name}`).then(
      (report) => set({ report, error: "", loading: false }),
      (e) => set({ error: (e as Error).message, loading: false }),
    );
  };
  useEffect(again, [name]);
  return { ...state, again };
}

function MachineAddons() {
  const { report, error } = useReport<any>("status");
  return (
    <Card title="Add-ons of coracle">
      {error && <Note bad>{error}</Note>}
      <ul class="chips">
        {((report?.batteries ?? []) as { name: string; on: boolean }[]).map((a) => (
          <li key={a.name}><Badge health={a.on ? { tone: "good", text: a.name } : { tone: "done", text: `${a.name} (disabled)` }} /></li>
        ))}
      </ul>
    </Card>
  );
}

interface Backup {
  name: string;
  nodeName: string;
  location: string;
  size: number | string;
  createdAt: string;
  status: string;
  message?: string;
}

export function Backups() {
  const [found, setFound] = useState<Obj | string>();
  useEffect(() => {
    get("/api/v1/namespaces/kube-system/configmaps/coracle-etcd-snapshots").then(setFound, (e) => setFound(e.code === 404 ? "" : (e as Error).message));
  }, []);
  if (found === undefined) return <Note>Loading backups…</Note>;
  if (typeof found === "string")
    return (
      <Card title="Backups">
        <Note bad={!!found}>{found || <>There is no backup yet. <code>coracle etcd snapshot save</code> makes one, and <code>--etcd-snapshot-schedule-cron</code> makes them regularly.</>}</Note>
      </Card>
    );
  const all = Object.values((found.data ?? {}) as Record<string, string>)
    .map((text) => JSON.parse(text) as Backup)
    .sort((a, b) => b.createdAt.localeCompare(a.createdAt));
  return (
    <Card title={`Backups (${all.length})`}>
      <ul class="plain backups">
        {all.map((b) => (
          <li key={b.location}>
            <strong>{b.name}</strong>
            <Badge health={/succe/i.test(b.status) ? { tone: "good", text: "tried and good" } : { tone: "bad", text: b.message || b.status }} />
            <span class="faint">{when(b.createdAt)} (<Age from={b.createdAt} /> ago) · {bytes(quantity(b.size))} · {b.nodeName === "s3" ? "bucket" : b.nodeName}</span>
            <code>{b.location}</code>
          </li>
        ))}
      </ul>
    </Card>
  );
}

interface Check { name: string; about: string; result: string; finding: string; fix?: string }

const tones: Record<string, Health["tone"]> = { pass: "good", ok: "good", warn: "busy", fail: "bad", skipped: "done", ready: "good", starting: "busy", degraded: "busy", backoff: "bad", stopped: "bad" };

export function Machine() {
  const doctor = useReport<{ result: string; checks: Check[] }>("doctor");
  const status = useReport<any>("status");
  const checks = (doctor.report?.checks ?? []).toSorted((a, b) => rank(b) - rank(a));
  return (
    <>
      <Card title="What coracle doctor finds" aside={<button type="button" disabled={doctor.loading} onClick={doctor.again}>{doctor.loading ? "Examining…" : "Examine again"}</button>}>
        {doctor.error && <Note bad>{doctor.error}</Note>}
        <ul class="checks" aria-busy={doctor.loading}>
          {checks.map((c) => (
            <li key={c.name}>
              <Badge health={{ tone: tones[c.result] ?? "done", text: c.result }} />
              <strong>{c.name}</strong>
              <span>{c.finding}{c.fix && <em> {c.fix}</em>}</span>
            </li>
          ))}
        </ul>
      </Card>
      <Card title="Processes of this machine">
        {status.error && <Note bad>{status.error}</Note>}
        <ul class="plain">
          {((status.report?.processes ?? []) as any[]).map((p) => (
            <li key={p.name}>
              <strong>{p.name}</strong> <Badge health={{ tone: tones[p.state] ?? "done", text: p.state }} />
              <span class="faint">{p.memoryBytes ? `${bytes(p.memoryBytes)} private memory · ` : ""}{p.restarts ? `${p.restarts} restarts · ` : ""}since <Age from={p.started} /></span>
            </li>
          ))}
        </ul>
      </Card>
    </>
  );
}

const rank = (c: Check) => ({ fail: 3, warn: 2, skipped: 0 })[c.result] ?? 1;
