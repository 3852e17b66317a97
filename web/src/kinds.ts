// The kinds of objects that the page knows.

export interface Kind {
  group: string;
  version: string;
  plural: string;
  kind: string;
  namespaced: boolean;
}

const kind = (group: string, version: string, plural: string, kind: string, namespaced = true): Kind => ({ group, version, plural, kind, namespaced });

export const kinds = {
  nodes: kind("", "v1", "nodes", "Node", false),
  namespaces: kind("", "v1", "namespaces", "Namespace", false),
  pods: kind("", "v1", "pods", "Pod"),
  services: kind("", "v1", "services", "Service"),
  events: kind("", "v1", "events", "Event"),
  claims: kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"),
  configmaps: kind("", "v1", "configmaps", "ConfigMap"),
  deployments: kind("apps", "v1", "deployments", "Deployment"),
  statefulsets: kind("apps", "v1", "statefulsets", "StatefulSet"),
  daemonsets: kind("apps", "v1", "daemonsets", "DaemonSet"),
  replicasets: kind("apps", "v1", "replicasets", "ReplicaSet"),
  jobs: kind("batch", "v1", "jobs", "Job"),
  cronjobs: kind("batch", "v1", "cronjobs", "CronJob"),
  ingresses: kind("networking.k8s.io", "v1", "ingresses", "Ingress"),
  gateways: kind("gateway.networking.k8s.io", "v1", "gateways", "Gateway"),
  listenersets: kind("gateway.networking.k8s.io", "v1", "listenersets", "ListenerSet"),
  httproutes: kind("gateway.networking.k8s.io", "v1", "httproutes", "HTTPRoute"),
  grpcroutes: kind("gateway.networking.k8s.io", "v1", "grpcroutes", "GRPCRoute"),
  tlsroutes: kind("gateway.networking.k8s.io", "v1", "tlsroutes", "TLSRoute"),
  tcproutes: kind("gateway.networking.k8s.io", "v1", "tcproutes", "TCPRoute"),
  udproutes: kind("gateway.networking.k8s.io", "v1", "udproutes", "UDPRoute"),
  charts: kind("helm.cattle.io", "v1", "helmcharts", "HelmChart"),
  storageclasses: kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", false),
  apiservices: kind("apiregistration.k8s.io", "v1", "apiservices", "APIService", false),
  ingressclasses: kind("networking.k8s.io", "v1", "ingressclasses", "IngressClass", false),
  gatewayclasses: kind("gateway.networking.k8s.io", "v1", "gatewayclasses", "GatewayClass", false),
} satisfies Record<string, Kind>;

export const list: Kind[] = Object.values(kinds);

/** The path of a kind in the API, or of one object. */
export function path(k: Kind, namespace?: string, name?: string, sub?: string): string {
  const parts = [k.group ? `/apis/${k.group}/${k.version}` : `/api/${k.version}`];
  if (k.namespaced && namespace) parts.push("namespaces", encodeURIComponent(namespace));
  parts.push(k.plural);
  if (name) parts.push(encodeURIComponent(name).replaceAll("%3A", ":"));
  if (sub) parts.push(sub);
  return parts.join("/");
}

/** The address of an object on the page. */
export function link(k: Kind, namespace: string | undefined, name: string, tab?: string): string {
  return `#/object/${k.group || "core"}/${k.version}/${k.plural}/${k.namespaced ? (namespace ?? "") : "-"}/${name}${tab ? `/${tab}` : ""}`;
}
