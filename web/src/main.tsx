import { render } from "preact";
import "./style/page.css";
import "./style/parts.css";
import "./style/picture.css";
import { App } from "./App";
import { type Facts, Failed, enter, get } from "./api";
import { whoAmI } from "./can";
import { facts } from "./state";

async function start() {
  const root = document.getElementById("page")!;
  try {
    await enter();
    facts.value = await get<Facts>("/facts");
  } catch (e) {
    const closed = e instanceof Failed && e.code === 401;
    render(
      <main class="closed">
        <h1>{closed ? "This page is closed" : "Something is wrong"}</h1>
        <p>{closed ? "Open the address that 'coracle dashboard' printed: it lets this browser in." : (e as Error).message}</p>
      </main>,
      root,
    );
    return;
  }
  render(<App />, root);
  void whoAmI().catch(() => {});
}

void start();
