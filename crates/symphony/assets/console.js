// Keeps the page live: when the server says that something changed, the parts marked data-live are read again.
// Without this script every page works, and shows what was so when it was read.
const liveness = document.getElementById("liveness");
const say = (words) => { if (liveness) liveness.textContent = words; };
let reading = false;

async function refresh() {
  // Whoever types is left alone, and so is a page that nobody looks at.
  if (reading || document.hidden || document.activeElement?.closest("[data-live]")) return;
  reading = true;
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" }, redirect: "error" });
    if (!answer.ok) throw new Error(String(answer.status));
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of document.querySelectorAll("[data-live]")) {
      const fresh = page.getElementById(part.id);
      if (fresh) part.replaceWith(document.adoptNode(fresh));
    }
    say("Live.");
  } catch {
    say("Not live: reload to see what is so now.");
  } finally {
    reading = false;
  }
}

// A browser keeps pages that were left, and has six connections to a site: one that nobody sees must not hold one.
let source = null;
function listen() {
  if (source) return;
  source = new EventSource("/live");
  source.addEventListener("changed", refresh);
  source.addEventListener("open", () => say("Live."));
  source.addEventListener("error", () => say("Not live: connecting again."));
}

if (document.querySelector("nav")) {
  listen();
  addEventListener("pagehide", () => { source?.close(); source = null; });
  addEventListener("pageshow", listen);
  document.addEventListener("visibilitychange", refresh);
}
