// What state an object is in, in one word and one of five tones.

import type { Obj } from "./api";

export type Tone = "good" | "busy" | "bad" | "done" | "leaving";
export interface Health {
  tone: Tone;
  text: string;
}

const condition = (o: Obj, type: string) => (o.status?.conditions as any[] | undefined)?.find((c) => c.type === type);

/** The state of a pod, as kubectl get shows it. */
export function podHealth(p: Obj): Health {
  const status = p.status ?? {};
  if (p.metadata.deletionTimestamp) return { tone: "leaving", text: "Terminating" };
  if (status.reason === "Evicted" || status.reason === "NodeLost") return { tone: "bad", text: status.reason };
  const inits: any[] = status.initContainerStatuses ?? [];
  for (const [i, c] of inits.entries()) {
    const restartable = p.spec?.initContainers?.[i]?.restartPolicy === "Always";
    if (c.state?.terminated?.exitCode === 0 || (restartable && c.started)) continue;
    const why = c.state?.terminated?.reason ?? c.state?.waiting?.reason;
    if (why && why !== "PodInitializing") return { tone: bad(why) ? "bad" : "busy", text: `Init: ${why}` };
    return { tone: "busy", text: `Init ${i} of ${inits.length}` };
  }
  for (const c of (status.containerStatuses ?? []) as any[]) {
    const waiting = c.state?.waiting?.reason;
    if (waiting && waiting !== "PodInitializing") return { tone: bad(waiting) ? "bad" : "busy", text: waiting };
    const ended = c.state?.terminated;
    if (ended && ended.exitCode !== 0) return { tone: "bad", text: ended.reason ?? `Exit ${ended.exitCode}` };
  }
  switch (status.phase) {
    case "Succeeded":
      return { tone: "done", text: "Completed" };
    case "Failed":
      return { tone: "bad", text: status.reason ?? "Failed" };
    case "Running":
      return condition(p, "Ready")?.status === "True" ? { tone: "good", text: "Running" } : { tone: "busy", text: "Not ready" };
  }
  if (condition(p, "PodScheduled")?.status === "False") return { tone: "busy", text: "Unscheduled" };
  return { tone: "busy", text: status.phase ?? "Pending" };
}

const bad = (reason: string) => /BackOff|Err|Error|Invalid|Failed|OOMKilled/.test(reason);

export function nodeHealth(n: Obj): Health {
  if (!n.status) return { tone: "done", text: "Not to be seen" };
  const ready = condition(n, "Ready");
  if (n.metadata.deletionTimestamp) return { tone: "leaving", text: "Leaving" };
  if (ready?.status === "Unknown") return { tone: "bad", text: "Not reachable" };
  if (ready?.status !== "True") return { tone: "bad", text: "Not ready" };
  const pressure = (n.status.conditions as any[]).find((c) => c.type.endsWith("Pressure") && c.status === "True");
  if (pressure) return { tone: "busy", text: pressure.type };
  if (n.spec?.unschedulable) return { tone: "busy", text: "Cordoned" };
  return { tone: "good", text: "Ready" };
}

export const roles = (n: Obj) =>
  Object.keys(n.metadata.labels ?? {})
    .filter((l) => l.startsWith("node-role.kubernetes.io/"))
    .map((l) => l.slice("node-role.kubernetes.io/".length))
    .filter((r) => r && r !== "etcd")
    .join(", ");

/** How many pods a workload wants and has. */
export function counts(o: Obj): { want: number; have: number } | undefined {
  const s = o.status ?? {};
  switch (o.kind) {
    case "Deployment":
    case "ReplicaSet":
      return { want: o.spec.replicas ?? 1, have: s.availableReplicas ?? 0 };
    case "StatefulSet":
      return { want: o.spec.replicas ?? 1, have: s.readyReplicas ?? 0 };
    case "DaemonSet":
      return { want: s.desiredNumberScheduled ?? 0, have: s.numberAvailable ?? 0 };
    case "Job":
      return { want: o.spec.completions ?? 1, have: s.succeeded ?? 0 };
  }
  return undefined;
}

export function workloadHealth(o: Obj): Health {
  if (o.metadata.deletionTimestamp) return { tone: "leaving", text: "Terminating" };
  const n = counts(o);
  switch (o.kind) {
    case "CronJob":
      return o.spec.suspend ? { tone: "done", text: "Suspended" } : { tone: "good", text: (o.status?.active?.length ?? 0) > 0 ? "Running" : "Scheduled" };
    case "Job":
      if (condition(o, "Complete")?.status === "True") return { tone: "done", text: "Completed" };
      if (condition(o, "Failed")?.status === "True") return { tone: "bad", text: "Failed" };
      return o.spec.suspend ? { tone: "done", text: "Suspended" } : { tone: "busy", text: "Running" };
    case "Deployment":
      if (condition(o, "ReplicaFailure")?.status === "True") return { tone: "bad", text: "Cannot make pods" };
      if (condition(o, "Progressing")?.status === "False") return { tone: "bad", text: "Stuck" };
  }
  if (!n) return { tone: "done", text: "–" };
  if (n.want === 0) return { tone: "done", text: "Scaled to 0" };
  const updated = o.kind === "DaemonSet" ? o.status?.updatedNumberScheduled : o.status?.updatedReplicas;
  if (n.have >= n.want) return (updated ?? n.want) < n.want ? { tone: "busy", text: "Updating" } : { tone: "good", text: "Available" };
  return { tone: n.have === 0 ? "bad" : "busy", text: n.have === 0 ? "Not available" : "Progressing" };
}

/** Whether labels match the selector of a Service. */
export function selects(selector: Record<string, string> | undefined, labels: Record<string, string> | undefined): boolean {
  const wanted = Object.entries(selector ?? {});
  return wanted.length > 0 && wanted.every(([k, v]) => labels?.[k] === v);
}

export const restarts = (p: Obj) => ((p.status?.containerStatuses ?? []) as any[]).reduce((n, c) => n + c.restartCount, 0);
