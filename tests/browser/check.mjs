// The console's pages in a real browser: node check.mjs ADDRESS CHROMIUM [FOLDER FOR SCREENSHOTS]
//
// Each page is looked at in light and dark by axe-core's rules of WCAG 2.1 AA, by keyboard alone, and without scripts.
import { AxeBuilder } from "@axe-core/playwright";
import assert from "node:assert/strict";
import { join } from "node:path";
import { chromium } from "playwright-core";

const [address, executablePath, folder] = process.argv.slice(2);
const PAGES = ["/", "/views", "/policies", "/denials", "/tap", "/checks"];
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"];
/// Loads of each page that are timed.
const LOADS = 20;

// The demo may still start.
for (let left = 300; ; left -= 1) {
  const answer = await fetch(address).catch(() => undefined);
  if (answer) {
    break;
  }
  assert.ok(left > 0, `nobody serves ${address}`);
  await new Promise((resolve) => setTimeout(resolve, 200));
}

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const problems = [];

/// A page that notes what it asks elsewhere, and what its policy refuses.
const open = async (options) => {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const page = await context.newPage();
  page.on("request", (request) => {
    if (!request.url().startsWith(address) && !request.url().startsWith("data:")) {
      problems.push(`asked elsewhere: ${request.url()}`);
    }
  });
  page.on("console", (message) => {
    if (message.type() === "error" && !message.text().includes("404")) {
      problems.push(`said: ${message.text()}`);
    }
  });
  page.on("pageerror", (error) => problems.push(`threw: ${error}`));
  return page;
};

/// Waits until a page says so. (`waitForFunction` needs `eval`, which the pages forbid.)
const until = async (page, what, question, argument) => {
  const end = Date.now() + 60_000;
  while (!(await page.evaluate(question, argument))) {
    assert.ok(Date.now() < end, `not within a minute: ${what}`);
    await page.waitForTimeout(50);
  }
};

const accessible = async (page, what) => {
  const found = await new AxeBuilder({ page }).withTags(RULES).analyze();
  for (const { id, nodes } of found.violations) {
    problems.push(`${what}: ${id} at ${nodes.map((node) => node.target).join(", ")}`);
  }
};

/// The pages that are reached by a link from another one: what it leads to may soon be forgotten.
const LINKED = [["/denials", "/denial?"], ["/policies", "/policy?"]];
const linked = async (page, [from, start]) => {
  await page.goto(address + from);
  const link = page.locator(`#live a[href^="${start}"]`).first();
  return link.getAttribute("href");
};

const first = await open({});
// Somebody was denied, and the coordinator was asked, a few seconds after the first page was read.
await first.goto(address);
await until(first, "a denial", () => document.querySelector("#live a[href^='/denial?']"));
const all = [...PAGES, ...LINKED];
const address_of = (page, path) => (Array.isArray(path) ? linked(page, path) : path);

for (const colorScheme of ["light", "dark"]) {
  const page = await open({ colorScheme });
  for (const one of all) {
    const path = await address_of(page, one);
    const answer = await page.goto(address + path);
    assert.equal(answer.status(), 200, path);
    await accessible(page, `${colorScheme} ${path}`);
    if (folder && colorScheme === "light") {
      const name = path === "/" ? "overview" : path.slice(1).split("?")[0];
      await page.screenshot({ path: join(folder, `${name}.png`) });
    }
  }
  await page.context().close();
}

// Without scripts, each page is whole and comes again by itself.
{
  const page = await open({ javaScriptEnabled: false });
  for (const one of all) {
    await page.goto(address + (await address_of(page, one)));
    assert.equal(await page.locator("main h1").count(), 1);
    assert.equal(await page.locator("meta[http-equiv=refresh]").count(), 1);
  }
}

// By keyboard alone: to the content, through the pages, to a denial, and back to a filtered table.
{
  const page = await open({});
  await page.goto(address);
  const focused = () => page.evaluate(() => document.activeElement.textContent.trim() || document.activeElement.name);
  await page.keyboard.press("Tab");
  assert.equal(await focused(), "To the content");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "main");
  await page.goto(address);
  const tabTo = async (text) => {
    for (let presses = 0; presses < 60; presses += 1) {
      await page.keyboard.press("Tab");
      if ((await focused()) === text) {
        return;
      }
    }
    assert.fail(`Tab does not reach ${text}`);
  };
  await tabTo("Denials");
  await page.keyboard.press("Enter");
  await page.waitForURL("**/denials");
  await tabTo("filter");
  await page.keyboard.type("Ingress");
  await page.keyboard.press("Enter");
  await page.waitForURL("**/denials?filter=Ingress");
  const link = page.locator("#live a[href^='/denial?']").first();
  const time = (await link.textContent()).trim();
  await tabTo(time);
  await page.keyboard.press("Enter");
  await page.waitForURL("**/denial?id=*");
  assert.match(await page.textContent("main"), /denied at/);
  assert.match(await page.textContent("main"), /revision/);
}

// The part that changes does so by itself, and a focus within it stays.
{
  const page = await open({});
  await page.goto(address + "/views");
  const ages = () => page.locator("#live tbody").textContent();
  await page.locator("input[type=search]").fill("half a wo");
  const before = await ages();
  await until(page, "another age", (before) => document.querySelector("#live tbody").textContent !== before, before);
  assert.equal(await page.inputValue("input[type=search]"), "half a wo");
  await page.goto(address + "/policies");
  await page.locator("#live a").first().focus();
  const link = await page.evaluate(() => document.activeElement.getAttribute("href"));
  await page.evaluate(() => { document.querySelector("#live").firstElementChild.dataset.old = "yes"; });
  await until(page, "an update", () => !document.querySelector("#live [data-old]"));
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute("href")), link);
}

// How long pages take to load.
{
  const page = await open({});
  const times = [];
  for (const path of PAGES) {
    for (let load = 0; load < LOADS; load += 1) {
      await page.goto(address + path);
      times.push(await page.evaluate(() => performance.getEntriesByType("navigation")[0].loadEventEnd));
    }
  }
  times.sort((a, b) => a - b);
  const p95 = times[Math.floor(times.length * 0.95)];
  console.log(`${times.length} loads: p95 ${p95.toFixed(0)} ms, the slowest ${times.at(-1).toFixed(0)} ms`);
}

// What no page of ours asks is refused.
{
  const refused = async (options) => (await fetch(address, options)).status;
  assert.equal(await refused({ method: "POST" }), 405);
}

await browser.close();
assert.deepEqual(problems, []);
console.log(`${all.length} pages in two colour schemes: no violation of WCAG 2.1 AA, nothing from elsewhere`);
