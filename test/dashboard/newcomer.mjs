// What a newcomer sees of a site: "stranger" and "visitor" go to the site at an address, "owner" to the page of coracle dashboard. A visitor trusts the authority
// of the site's certificate, a stranger does not.

import { check, fail, look, open, wrong } from "./browser.mjs";

const [who, address, pictures] = process.argv.slice(2);
const site = "https://site.example.com/";
const rules = `MAP site.example.com ${address}`;

async function visitor() {
  const { page, close, response } = await open(site, { rules, width: 720, height: 240 });
  const text = await page.locator("body").innerText();
  const { protocol, issuer, validTo } = (await response.securityDetails()) ?? {};
  console.log(`${page.url()} says "${text.trim()}", ${protocol}, certificate by ${issuer} until ${new Date(validTo * 1000).toISOString()}`);
  check(text.trim() === "hello from a pod", "the site does not say what it should");
  check(issuer?.includes("Pebble"), `the certificate is by ${issuer}`);
  await close();
}

async function stranger() {
  const error = await open(site, { rules }).then(() => "", (e) => e.message);
  console.log(error.split("\n")[0]);
  check(error.includes("ERR_CERT_AUTHORITY_INVALID"), "a browser that does not trust the authority opens the site");
}

async function owner() {
  const { page, close } = await open(address, { height: 640 });
  await page.locator(".pod").first().waitFor();
  await look(page, pictures, "newcomer-overview", "#/overview", ".way");
  await look(page, pictures, "newcomer-network", "#/network", ".ways-in .badge");
  for (const [kind, texts] of [["Gateway", ["site.example.com:443", "89 days left"]], ["HTTPRoute", ["site.example.com", "site", "89 days left"]]]) {
    const line = page.locator(".ways-in li", { has: page.locator(`.way-kind:text-is("${kind}")`) });
    for (const text of texts) await line.locator(`text=${text}`).first().waitFor().catch(() => fail(`the ${kind} does not show ${text}`));
    console.log((await line.allInnerTexts()).join("; ").replaceAll("\n", " "));
  }
  await close();
}

await { visitor, stranger, owner }[who]().catch((e) => fail(`${who}: ${e.stack ?? e}`));
process.exit(wrong.length ? 1 : 0);
