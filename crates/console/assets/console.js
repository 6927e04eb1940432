// Keeps the page live: on every event of /live it fetches the page again and replaces the parts marked data-live.
// Without this script every page works and shows the state at its load.
const liveness = document.getElementById("liveness");
const show = (text) => { if (liveness) liveness.textContent = text; };
let refreshing = false;

async function refresh() {
  // Not while the user types in a live part, nor on a hidden page.
  if (refreshing || document.hidden || document.activeElement?.closest("[data-live]")) return;
  refreshing = true;
  try {
    const response = await fetch(location.href, { headers: { accept: "text/html" }, redirect: "error" });
    if (!response.ok) throw new Error(String(response.status));
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    for (const part of document.querySelectorAll("[data-live]")) {
      const fresh = page.getElementById(part.id);
      if (fresh) part.replaceWith(document.adoptNode(fresh));
    }
    show("Live.");
  } catch {
    show("Not live: reload to see the current state.");
  } finally {
    refreshing = false;
  }
}

// A browser keeps pages in its cache and opens at most six connections per site: a cached page must not hold one.
let source = null;
function listen() {
  if (source) return;
  source = new EventSource("/live");
  source.addEventListener("changed", refresh);
  source.addEventListener("open", () => show("Live."));
  source.addEventListener("error", () => show("Not live: reconnecting."));
}

if (document.querySelector("nav")) {
  listen();
  addEventListener("pagehide", () => { source?.close(); source = null; });
  addEventListener("pageshow", listen);
  document.addEventListener("visibilitychange", refresh);
}
