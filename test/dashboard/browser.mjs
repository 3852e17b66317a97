// Chromium with a page that reports everything that is wrong with it.

import { readFileSync } from "node:fs";
import { mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { tmpdir } from "node:os";
import { chromium } from "playwright-core";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export const wrong = [];
export const fail = (what) => {
  wrong.push(what);
  console.log(`WRONG: ${what}`);
};
export const check = (ok, what) => ok || fail(what);

/**
 * Opens a page of an own browser, as a person of one kind would. With a pin, the server must have the certificate with this hash of its public key. Names are
 * looked up by the rules.
 */
export async function open(address, { width = 1440, height = 900, theme = "dark", reduced = false, pin = "", rules = "MAP wall.example.org 127.0.0.1" } = {}) {
  const profile = mkdtempSync(join(tmpdir(), "dashboard-"));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: "/usr/bin/chromium", headless: true, viewport: { width, height }, colorScheme: theme, locale: "en-GB",
    reducedMotion: reduced ? "reduce" : "no-preference",
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
      `--ignore-certificate-errors-spki-list=${pin}`, `--host-resolver-rules=${rules}`],
  });
  const page = context.pages()[0];
  page.setDefaultTimeout(20_000);
  const origin = new URL(address).origin;
  const name = `${width}x${height} ${theme}`;
  page.on("pageerror", (e) => fail(`${name}: ${e.stack ?? e}`));
  page.on("console", (m) => {
    // A refused or missing thing is an answer, which the page explains; everything else is an error of the page.
    if (m.type() === "error" && !/status of (403|404|409|503)|WebSocket connection|ERR_CONNECTION/.test(m.text())) fail(`${name} console: ${m.text()}`);
  });
  page.on("request", (r) => {
    if (!r.url().startsWith(origin) && !r.url().startsWith("data:")) fail(`${name}: request to another host: ${r.url()}`);
  });
  const response = await page.goto(address);
  const close = async () => {
    await context.close();
    rmSync(profile, { recursive: true, force: true });
  };
  return { page, close, response };
}

/** Shows a view, waits until something is there, looks for faults of accessibility, and takes a picture. */
export async function look(page, pictures, name, hash, ready, { audit = true } = {}) {
  if (hash !== undefined) await page.evaluate((h) => (location.hash = h), hash);
  if (ready) await page.locator(ready).first().waitFor().catch((e) => fail(`${name}: ${ready} did not appear: ${e.message.split("\n")[0]}`));
  await page.evaluate(() => Promise.all(document.getAnimations().filter((a) => a.effect?.getComputedTiming().iterations === 1).map((a) => a.finished.catch(() => {}))));
  await page.screenshot({ path: join(pictures, `${name}.png`) });
  if (!audit) return;
  const size = page.viewportSize();
  await page.setViewportSize({ width: size.width, height: 2400 }); // what the window cuts off is not a fault
  const found = await page.evaluate(`(() => { const module = undefined, exports = undefined; ${axe}; return axe.run({ runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"] }); })()`).catch((e) => ({ violations: [], error: e.message }));
  await page.setViewportSize(size);
  if (found.error) fail(`${name}: axe: ${found.error}`);
  for (const v of found.violations) fail(`${name}: axe ${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map((n) => `${n.target} ${n.any[0]?.message ?? ""}`).join("; ")}`);
}
