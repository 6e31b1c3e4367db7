// Finds the sections of the course that hold every word asked for. PLACES comes from search-index.js:
// [file, title of the page, id, heading, text] for each section.

const plain = (text) => text.toLowerCase().replaceAll("α", "alpha");

function search(question, places) {
  const words = plain(question).match(/[\p{L}\p{N}_./-]+/gu) ?? [];
  if (!words.length) return [];
  const found = [];
  for (const place of places) {
    const heading = plain(place[1] + " " + place[3]), text = plain(place[4]);
    let score = 0;
    for (const word of words) {
      const times = text.split(word).length - 1;
      const named = heading.includes(word);
      if (!times && !named) { score = 0; break; }
      score += (named ? 20 : 0) + Math.min(times, 5);
    }
    if (score) found.push({ score, place, words });
  }
  return found.sort((one, other) => other.score - one.score);
}

// A few words around the first match; the match itself, where letters were not replaced, in <mark>.
function excerpt(text, words) {
  const at = Math.max(0, Math.min(...words.map((word) => {
    const here = text.toLowerCase().indexOf(word);
    return here < 0 ? Infinity : here;
  }).filter(Number.isFinite), text.length) - 60) || 0;
  const from = at >= text.length - 61 ? 0 : text.lastIndexOf(" ", at) + 1;
  const shown = document.createElement("p");
  const piece = (from ? "… " : "") + text.slice(from, from + 200) + " …";
  const any = new RegExp("(" + words.map((w) => w.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&")).join("|") + ")", "i");
  for (const part of piece.split(any)) {
    if (any.test(part)) shown.append(Object.assign(document.createElement("mark"), { textContent: part }));
    else shown.append(part);
  }
  return shown;
}

const question = new URLSearchParams(location.search).get("q") ?? "";
if (question.trim()) {
  document.getElementById("asked").value = question;
  const found = search(question, PLACES), most = 40;
  for (const { place: [file, title, id, heading, text], words } of found.slice(0, most)) {
    const item = document.createElement("li"), link = document.createElement("a");
    link.href = file + (id ? "#" + encodeURIComponent(id) : "");
    link.textContent = heading === title ? title : title + ": " + heading;
    item.append(link, excerpt(text, words));
    document.getElementById("found").append(item);
  }
  const more = found.length > most ? `, the first ${most} of them below` : "";
  document.getElementById("count").textContent =
    found.length ? `${found.length} ${found.length === 1 ? "section" : "sections"}${more}.`
                 : `Nothing holds all of: ${question}. Try fewer words, or the start of one.`;
  document.title = `${question} · ${document.title}`;
}
