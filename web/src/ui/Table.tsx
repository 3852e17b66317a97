// A table of any length: only the rows in sight are in the document.

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { plural } from "../format";

export interface Column<T> {
  title: string;
  /** Its share of the width, as in CSS grid. */
  width: string;
  cell: (row: T) => ComponentChildren;
  /** What it is sorted by; a column without it cannot be. */
  by?: (row: T) => string | number;
  /** Its width on a phone, if that differs. */
  narrow?: string;
  /** A phone has no room for it. */
  wide?: boolean;
}

interface Props<T> {
  label: string;
  rows: T[];
  columns: Column<T>[];
  id: (row: T) => string;
  href?: (row: T) => string;
  sort?: number;
}

const height = 44;
const margin = 8; // rows above and below those in sight

export function Table<T>({ label, rows, columns, id, href, sort = 0 }: Props<T>) {
  const [order, setOrder] = useState({ column: sort, down: false });
  const [top, setTop] = useState(0);
  const [room, setRoom] = useState(800);
  const body = useRef<HTMLDivElement>(null);
  const by = columns[order.column]?.by;
  const sorted = useMemo(() => {
    if (!by) return rows;
    const keyed = rows.map((row) => ({ row, key: by(row) }));
    keyed.sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
    if (order.down) keyed.reverse();
    return keyed.map((k) => k.row);
  }, [rows, order]);

  useEffect(() => {
    const box = body.current!;
    const observer = new ResizeObserver(() => setRoom(box.clientHeight));
    observer.observe(box);
    return () => observer.disconnect();
  }, []);
  // The browser sets what the policy lets no attribute say.
  useEffect(() => {
    body.current!.parentElement!.style.setProperty("--columns", columns.map((c) => c.width).join(" "));
    body.current!.parentElement!.style.setProperty("--narrow", columns.filter((c) => !c.wide).map((c, i) => (i === 0 ? "minmax(0, 1fr)" : (c.narrow ?? c.width))).join(" "));
  });

  const at = Math.max(0, Math.min(top, sorted.length * height - room)); // the list may have become shorter
  const first = Math.max(0, Math.floor(at / height) - margin);
  const last = Math.min(sorted.length, Math.ceil((at + room) / height) + margin);
  const keys = (e: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[e.key];
    const row = (e.target as HTMLElement).closest<HTMLElement>("[data-row]");
    if (!step || !row) return;
    e.preventDefault();
    const to = Math.min(sorted.length - 1, Math.max(0, Number(row.dataset.row) + step));
    const box = body.current!;
    if (to * height < box.scrollTop) box.scrollTop = to * height;
    if ((to + 1) * height > box.scrollTop + box.clientHeight) box.scrollTop = (to + 1) * height - box.clientHeight;
    const next = () => box.querySelector<HTMLElement>(`[data-row="${to}"] a`);
    if (next()) next()!.focus({ preventScroll: true });
    else requestAnimationFrame(() => next()?.focus({ preventScroll: true })); // it comes into the document with the scrolling
  };

  return (
    <div class="table" role="table" aria-label={`${label}, ${plural(rows.length, "row")}`} aria-rowcount={rows.length + 1}>
      <div role="rowgroup" class="table-head">
        <div role="row" class="table-row" aria-rowindex={1}>
          {columns.map((c, i) => (
            <div role="columnheader" class={c.wide ? "wide" : ""} aria-sort={order.column === i && c.by ? (order.down ? "descending" : "ascending") : undefined}>
              {c.by ? (
                <button type="button" onClick={() => setOrder({ column: i, down: order.column === i && !order.down })}>
                  {c.title}
                  <span aria-hidden="true">{order.column === i ? (order.down ? " ↓" : " ↑") : ""}</span>
                </button>
              ) : (
                c.title
              )}
            </div>
          ))}
        </div>
      </div>
      <div role="rowgroup" class="table-body" ref={body} onScroll={(e) => setTop(e.currentTarget.scrollTop)} onKeyDown={keys}>
        <Space rows={first} />
        {sorted.slice(first, last).map((row, i) => (
          <div role="row" class="table-row" key={id(row)} data-row={first + i} aria-rowindex={first + i + 2}>
            {columns.map((c, n) => (
              <div role={n === 0 ? "rowheader" : "cell"} class={c.wide ? "wide" : ""}>
                {n === 0 && href ? <a href={href(row)}>{c.cell(row)}</a> : c.cell(row)}
              </div>
            ))}
          </div>
        ))}
        <Space rows={sorted.length - last} />
      </div>
    </div>
  );
}

function Space({ rows }: { rows: number }) {
  const ref = useRef<HTMLDivElement>(null);
  useEffect(() => {
    ref.current!.style.height = `${rows * height}px`;
  }, [rows]);
  return <div ref={ref} role="presentation" />;
}
