// A small chart of one value over the last minutes.

import { useMemo } from "preact/hooks";

export interface Sample {
  at: number;
  value: number;
}

const w = 240;
const h = 56;

export function Chart({ label, samples, top, text }: { label: string; samples: Sample[]; top: number; text: string }) {
  const path = useMemo(() => {
    if (samples.length === 0) return { line: "", area: "", end: "" };
    const end = samples[samples.length - 1].at;
    const begin = Math.min(samples[0].at, end - 120_000);
    const most = Math.max(top, ...samples.map((s) => s.value), 1e-9);
    const points = samples.map((s) => `${(((s.at - begin) / (end - begin || 1)) * (w - 3)).toFixed(1)},${(h - 3 - (s.value / most) * (h - 8)).toFixed(1)}`);
    const first = points[0].split(",")[0];
    const last = points[points.length - 1];
    return { end: `M${last}h0`, line: `M${points.join("L")}`, area: `M${first},${h}L${points.join("L")}L${w - 3},${h}Z` };
  }, [samples, top]);
  return (
    <figure class="chart">
      <figcaption>
        <span>{label}</span>
        <strong>{text}</strong>
      </figcaption>
      <svg viewBox={`0 0 ${w} ${h}`} preserveAspectRatio="none" role="img" aria-label={`${label}: ${text}`}>
        <path class="chart-area" d={path.area} />
        <path class="chart-base" d={`M0,${h - 1}H${w}`} vector-effect="non-scaling-stroke" />
        <path class="chart-line" d={path.line} vector-effect="non-scaling-stroke" />
        <path class="chart-end" d={path.end} vector-effect="non-scaling-stroke" />
      </svg>
    </figure>
  );
}
