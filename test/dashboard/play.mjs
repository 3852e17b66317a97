// What people do on the page. It is called with the addresses of an administrator, a viewer and a wall, a directory for pictures, and the hash of the wall's public key.
// Lines that begin with "please" ask the test that called it for something.

import { join } from "node:path";
import { check, fail, look, open, wrong } from "./browser.mjs";

const [admin, viewer, wall, pictures, pin] = process.argv.slice(2);
const say = (text) => console.log(text);
// Pastes as people do, in place of all text.
const paste = (page, text) =>
  page.locator(".cm-content").evaluate((editor, text) => {
    editor.focus();
    const clipboardData = new DataTransfer();
    clipboardData.setData("text/plain", text);
    editor.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
  }, text);
const object = (kind, name, tab = "overview") => `#/object/${kind}/shop/${name}/${tab}`;

async function views() {
  const { page, close } = await open(admin);
  await page.locator(".pod").first().waitFor();
  check(!page.url().includes(admin.split("#")[1]), "the secret stays in the address bar");
  await page.locator(".water").first().waitFor({ timeout: 60_000 }).catch(() => fail("no water: metrics did not come"));
  await look(page, pictures, "overview", "#/overview", ".way");
  await look(page, pictures, "nodes", "#/nodes", ".meter");
  await look(page, pictures, "workloads", "#/workloads", '[role="rowheader"]');
  await look(page, pictures, "pods", "#/pods", '[role="rowheader"]');
  await page.evaluate(() => (location.hash = "#/network"));
  const shows = (name, text) =>
    page.locator(".ways-in li", { has: page.locator(`a:text-matches("^(shop/)?${name}$")`) }).locator(`text=${text}`).first().waitFor().catch(() => fail(`the list of ways in does not say of ${name}: ${text}`));
  for (const text of ["Gateway", "news.example.org:443", "46 days left"]) await shows("front", text);
  for (const text of ["HTTPRoute", "news.example.org", "storefront", "46 days left"]) await shows("news", text);
  for (const text of ["ResolvedRefs: BackendNotFound", "46 days left"]) await shows("archive", text);
  await look(page, pictures, "network", "#/network", ".ways-in .badge");
  await look(page, pictures, "gateway", object("gateway.networking.k8s.io/v1/gateways", "front"), '.conditions li:has-text("https: Programmed True")');
  await look(page, pictures, "route", object("gateway.networking.k8s.io/v1/httproutes", "archive"), '.conditions li:has-text("at front: ResolvedRefs False")');
  await look(page, pictures, "events", "#/events", ".events li");
  await look(page, pictures, "addons", "#/addons", ".chips .badge");
  await look(page, pictures, "backups", "#/backups", ".backups strong");
  await look(page, pictures, "machine", "#/machine", ".checks strong");
  await look(page, pictures, "deployment", object("apps/v1/deployments", "storefront"), ".rows a");
  await look(page, pictures, "events-of", object("apps/v1/deployments", "storefront", "events"), ".events li");
  await look(page, pictures, "yaml", object("apps/v1/deployments", "storefront", "yaml"), ".cm-line");
  await close();
  say("saw all views");
}

async function change() {
  const { page, close } = await open(admin);
  await page.locator(".pod").first().waitFor();

  say("deploys");
  await page.locator("text=Apply YAML").click();
  await page.locator(".cm-content").click();
  await page.keyboard.press("Control+a");
  await paste(page, `apiVersion: apps/v1
kind: Deployment
metadata: {name: played, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: played}}
  template:
    metadata: {labels: {app: played}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: main, image: "coracle.test/busybox:1", command: [sh, -c, "echo the play begins; sleep 100000"]}]
`);
  await page.locator("text=Review the change").click();
  await look(page, pictures, "create-diff", undefined, ".diff ins");
  await page.locator('button:has-text("Apply")').last().click();
  await page.locator('[role="rowheader"]:has-text("played")').waitFor();

  say("scales, and sees the pods live");
  await page.evaluate((h) => (location.hash = h), object("apps/v1/deployments", "played"));
  await page.locator('.rows .tone-good >> nth=1').waitFor();
  await page.locator('button:has-text("Scale")').click();
  await page.locator('dialog input').fill("5");
  await look(page, pictures, "scale", undefined, "dialog[open]");
  await page.locator('dialog button[type="submit"]').click();
  await page.locator('.rows .tone-good >> nth=4').waitFor();
  check((await page.locator("h2:has-text('Pods (5)')").count()) === 1, "the page does not count five pods");

  say("edits with a diff");
  await page.locator('[role="tab"]:has-text("YAML")').click();
  await page.locator('button:has-text("Edit")').click();
  await page.locator(".cm-content").click();
  const text = await page.evaluate(async (path) => (await fetch(path)).json(), "/apis/apps/v1/namespaces/shop/deployments/played");
  await page.keyboard.press("Control+a");
  await paste(page, JSON.stringify({ ...text, spec: { ...text.spec, replicas: 3 }, metadata: { ...text.metadata, managedFields: undefined, labels: { played: "yes" } } }, null, 1));
  await page.locator("text=Review the change").click();
  await look(page, pictures, "edit-diff", undefined, ".diff ins");
  await page.locator('button:has-text("Save")').click();
  await page.locator(".said:has-text('saved')").waitFor();

  say("opens a shell and reads the log");
  const pods = await page.evaluate(async () => (await (await fetch("/api/v1/namespaces/shop/pods?labelSelector=app%3Dplayed")).json()).items.filter((p) => !p.metadata.deletionTimestamp && p.status.phase === "Running").map((p) => p.metadata.name));
  await page.evaluate((h) => (location.hash = h), object("core/v1/pods", pods[0], "terminal"));
  await page.locator(".xterm-rows").waitFor();
  await page.locator(".xterm-rows >> text=/[#$]/").first().waitFor();
  await page.keyboard.type("echo $((6 * 7)) is the answer; ls /\n");
  await page.locator(".xterm-rows >> text=42 is the answer").first().waitFor();
  await look(page, pictures, "terminal", undefined, undefined);
  await page.evaluate((h) => (location.hash = h), object("core/v1/pods", pods[0], "logs"));
  await page.locator('pre:has-text("the play begins")').waitFor();
  const busy = await page.evaluate(async () => (await (await fetch("/api/v1/namespaces/shop/pods?labelSelector=app%3Dstorefront")).json()).items[0].metadata.name);
  await look(page, pictures, "logs", object("core/v1/pods", busy, "logs"), 'pre:has-text("answered")');
  await look(page, pictures, "pod", object("core/v1/pods", busy), ".summary dl");

  say("restarts and deletes");
  await page.evaluate((h) => (location.hash = h), object("apps/v1/deployments", "played"));
  await page.locator('button:has-text("Restart")').click();
  await page.locator('dialog button[type="submit"]').click();
  await page.locator(".said:has-text('restarts')").waitFor();
  await page.locator('button:has-text("Delete")').click();
  check(await page.locator('dialog button[type="submit"]').isDisabled(), "a Deployment can be deleted without its name");
  await page.locator("dialog input").fill("played");
  await page.locator('dialog button[type="submit"]').click();
  await page.locator(".said:has-text('being deleted')").waitFor();
  await page.evaluate(() => (location.hash = "#/workloads"));
  await page.locator('[role="rowheader"]:has-text("played")').waitFor({ state: "detached" });

  say("goes by keyboard alone");
  await page.evaluate(() => document.activeElement?.blur?.());
  await page.keyboard.press("g");
  await page.keyboard.press("p");
  await page.locator('h2:has-text("Pods")').waitFor();
  await page.keyboard.press("/");
  await page.keyboard.type("ledger");
  await page.waitForFunction(() => document.querySelectorAll(".table-body [role=row]").length === 2);
  await page.locator('.table-body a').first().focus();
  await page.keyboard.press("ArrowDown");
  check((await page.evaluate(() => document.activeElement?.textContent)) === "ledger-1", "the arrow does not move to the next row");
  await page.keyboard.press("Enter");
  await page.locator("h1:has-text('ledger-1')").waitFor();
  await page.keyboard.press("?");
  await look(page, pictures, "keys", undefined, "dialog[open]");
  await page.keyboard.press("Escape");
  await close();
}

async function look_only() {
  say("comes as a viewer");
  const { page, close } = await open(viewer);
  await page.locator(".chip").first().waitFor(); // in the namespace of the kubeconfig
  await look(page, pictures, "viewer-start", undefined, undefined);
  await page.locator(".namespace input").fill("kube-system");
  await page.keyboard.press("Enter");
  await page.evaluate(() => (location.hash = "#/pods"));
  await page.locator("text=Your account may not list pods in the namespace kube-system").waitFor();
  await page.locator(".namespace input").fill("shop");
  await page.keyboard.press("Enter");
  await page.evaluate(() => (location.hash = "#/pods"));
  await page.locator('[role="rowheader"]').first().waitFor();
  await page.evaluate((h) => (location.hash = h), object("apps/v1/deployments", "storefront"));
  await page.locator("text=You may look at this Deployment, but not change it.").waitFor();
  await look(page, pictures, "viewer", undefined, ".summary dl");
  check((await page.locator(".actions button").count()) === 0, "a viewer is offered to change something");
  check((await page.locator("text=Apply YAML").count()) === 0, "a viewer is offered to apply");
  const name = await page.evaluate(async () => (await (await fetch("/api/v1/namespaces/shop/pods")).json()).items[0].metadata.name);
  const codes = await page.evaluate(async (name) => {
    const ask = async (method, path, body) => (await fetch(path, { method, body, headers: { "Content-Type": "application/json" } })).status;
    return {
      "delete a pod": await ask("DELETE", `/api/v1/namespaces/shop/pods/${name}`), "read Secrets": await ask("GET", "/api/v1/namespaces/shop/secrets"), "list nodes": await ask("GET", "/api/v1/nodes"),
      "reach a pod through the API": await ask("GET", `/api/v1/namespaces/shop/pods/${name}/proxy/`),
    };
  }, name);
  for (const [what, code] of Object.entries(codes)) check(code === 403, `a viewer may ${what}: ${code}`);
  await close();
}

async function screens() {
  say("looks at it on a phone, in the light and on the wall");
  const phone = await open(admin, { width: 390, height: 844, theme: "light" });
  await phone.page.locator(".pod").first().waitFor();
  await look(phone.page, pictures, "phone-overview", "#/overview", ".pod");
  await look(phone.page, pictures, "phone-pods", "#/pods", '[role="rowheader"]');
  await look(phone.page, pictures, "phone-deployment", object("apps/v1/deployments", "storefront"), ".summary dl");
  await phone.page.locator(".menu").click();
  await look(phone.page, pictures, "phone-menu", undefined, "nav.open");
  for (const hash of ["#/overview", "#/nodes", "#/workloads", "#/pods", "#/network", "#/events", "#/addons", "#/backups"]) {
    await phone.page.evaluate((h) => (location.hash = h), hash);
    await phone.page.waitForTimeout(150);
    check(await phone.page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `a phone has to scroll sideways in ${hash}`);
  }
  await phone.close();
  const light = await open(admin, { theme: "light", reduced: true });
  await light.page.locator(".water").first().waitFor();
  await look(light.page, pictures, "overview-light", "#/overview", ".way");
  await look(light.page, pictures, "deployment-light", object("apps/v1/deployments", "storefront"), ".rows a");
  await look(light.page, pictures, "yaml-light", object("apps/v1/deployments", "storefront", "yaml"), ".cm-line");
  await light.close();
  const screen = await open(wall, { width: 1920, height: 1080, pin });
  await screen.page.locator(".pod").first().waitFor();
  await screen.page.locator(".water").first().waitFor();
  await look(screen.page, pictures, "wall", "#/wall", ".way");
  const refused = await screen.page.evaluate(async () => (await fetch("/apis/apps/v1/namespaces/shop/deployments/orders/scale", { method: "PATCH", body: '{"spec":{"replicas":0}}', headers: { "Content-Type": "application/merge-patch+json" } })).status);
  check(refused === 403, `a wall may scale: ${refused}`);
  await screen.close();
}

async function speed() {
  const { page, close } = await open(admin);
  await page.locator(".pod").first().waitFor();
  const times = [];
  for (let i = 0; i < 5; i++) {
    await page.goto("about:blank");
    await page.goto(admin.split("#")[0] + "#/overview");
    await page.locator(".pod").first().waitFor();
    times.push(await page.evaluate(() => ({ paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0, bytes: performance.getEntriesByType("resource").filter((r) => r.name.includes("/assets/")).reduce((n, r) => n + r.encodedBodySize, 0) })));
  }
  times.sort((a, b) => a.paint - b.paint);
  say(`first paint: ${Math.round(times[2].paint)} ms (median of 5, worst ${Math.round(times[4].paint)} ms), ${times[0].bytes} bytes of scripts and styles`);
  check(times[2].paint < 500, "the first paint takes more than 0.5 s");
  await close();
}

async function lost() {
  const { page, close } = await open(admin);
  await page.locator(".pod").first().waitFor();
  say("please: an agent loses power");
  await page.locator('.node.tone-bad').waitFor({ timeout: 90_000 });
  await page.locator(".water").first().waitFor();
  await look(page, pictures, "node-lost", "#/overview", ".node.tone-bad");
  check((await page.locator('.figure.bad:has-text("1 node not ready")').count()) === 1, "the overview does not say that a node is lost");
  await close();
  const screen = await open(wall, { width: 1920, height: 1080, pin });
  await screen.page.locator(".pod").first().waitFor();
  await look(screen.page, pictures, "wall-lost", "#/wall", ".node.tone-bad");
  await screen.close();
}

async function many() {
  const { page, close } = await open(admin);
  await page.locator(".pod").first().waitFor();
  await page.evaluate(() => (location.hash = "#/pods"));
  say("please: ten thousand pods");
  await page.waitForFunction(() => /Pods \(10,0/.test(document.querySelector("h2")?.textContent ?? ""), undefined, { timeout: 150_000 });
  const began = Date.now();
  await page.reload();
  await page.waitForFunction(() => /Pods \(10,0/.test(document.querySelector("h2")?.textContent ?? ""), undefined, { timeout: 60_000 });
  const loaded = Date.now() - began;
  const figures = await page.evaluate(async () => {
    const body = document.querySelector(".table-body");
    const frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    let worst = 0;
    for (let i = 1; i <= 20; i++) {
      const t = performance.now();
      body.scrollTop = (body.scrollHeight * i) / 20;
      await frame();
      worst = Math.max(worst, performance.now() - t);
    }
    const rows = body.querySelectorAll('[role="row"]').length;
    const field = document.getElementById("filter");
    const t = performance.now();
    field.value = "many-07654";
    field.dispatchEvent(new Event("input", { bubbles: true }));
    await frame();
    return { worst, rows, filter: performance.now() - t, found: body.querySelectorAll('[role="row"]').length };
  });
  say(`10,000 pods: listed after ${loaded} ms, ${figures.rows} rows in the document, a jump takes at most ${Math.round(figures.worst)} ms, a filter ${Math.round(figures.filter)} ms`);
  check(figures.rows < 100, `${figures.rows} rows are in the document`);
  check(figures.found === 1, `the filter finds ${figures.found} pods`);
  check(figures.worst < 500 && figures.filter < 1000, "a list of 10,000 pods is slow");
  await look(page, pictures, "many", "#/overview", ".pod", { audit: false });
  await close();
}

const acts = { views, change, look_only, screens, speed, lost, many };
const only = process.env.ACTS ? process.env.ACTS.split(",") : Object.keys(acts);
for (const [name, act] of Object.entries(acts)) {
  if (!only.includes(name)) continue;
  const began = Date.now();
  await act().catch((e) => fail(`${name}: ${e.stack ?? e}`));
  say(`${name} took ${((Date.now() - began) / 1000).toFixed(1)} s`);
}
if (wrong.length) {
  console.error(`${wrong.length} things are wrong:\n${wrong.join("\n")}`);
  process.exit(1);
}
