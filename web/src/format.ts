// Figures and times as people read them.

const suffixes: Record<string, number> = {
  n: 1e-9, u: 1e-6, m: 1e-3, "": 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15,
  Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50,
};

/** Reads a quantity of Kubernetes, such as 250m or 1Gi. */
export function quantity(text: string | number | undefined): number {
  const m = /^([+-]?[0-9.]+(?:e[+-]?\d+)?)([A-Za-z]*)$/.exec(String(text ?? "0"));
  return m ? Number(m[1]) * (suffixes[m[2]] ?? 1) : 0;
}

export function bytes(n: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let i = 0;
  while (n >= 1000 && i < units.length - 1) {
    n /= 1024;
    i++;
  }
  return `${n >= 100 || i === 0 ? Math.round(n) : n.toFixed(1)} ${units[i]}`;
}

export const cores = (n: number) => (n < 1 ? `${Math.round(n * 1000)} m` : n.toFixed(n < 10 ? 2 : 1));
export const percent = (n: number) => (Number.isFinite(n) ? `${Math.round(n * 100)} %` : "–");

/** How long ago something was, in the form of kubectl. */
export function age(from: string | undefined, to: number): string {
  if (!from) return "–";
  const s = Math.max(0, Math.floor((to - Date.parse(from)) / 1000));
  if (s < 120) return `${s}s`;
  if (s < 7200) return `${Math.floor(s / 60)}m`;
  if (s < 172_800) return `${Math.floor(s / 3600)}h`;
  return `${Math.floor(s / 86_400)}d`;
}

export const when = (iso: string | undefined) => (iso ? new Date(iso).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" }) : "–");
export const plural = (n: number, one: string, many = `${one}s`) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
