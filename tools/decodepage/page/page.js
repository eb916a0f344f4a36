'use strict';

// The page: it hands the text to the decoder (package decode, as WebAssembly)
// and shows the answer. Text from the log is only ever set as text.

const example = `[166755.330649] infiniband mlx5_0: mlx5_handle_error_cqe:333:(pid 0): WC error: 10, Message: remote access error
[166755.332323] infiniband mlx5_0: dump_cqe:272:(pid 0): dump error cqe
[166755.332944] 00000000: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
[166755.333574] 00000010: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
[166755.334202] 00000020: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
[166755.334837] 00000030: 00 00 00 00 00 00 88 13 08 03 61 b3 1e a1 42 d3
NET/IB : Got completion from peer 10.0.0.2<44206> with status=5 opcode=32656 len=32659 vendor err 249 (Recv)
`;

const $ = (id) => document.getElementById(id);
let records = [];
let timer = 0;

// el makes an element with text or children in it.
function el(tag, className, ...content) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  e.append(...content);
  return e;
}

function show() {
  const text = $('text').value;
  $('notes').replaceChildren();
  $('findings').replaceChildren();
  records = [];
  $('copy').disabled = true;
  if (text.trim() === '') {
    $('summary').textContent = 'Paste something to see what it means.';
    return;
  }
  const a = JSON.parse(globalThis.decodeText(text));
  records = a.records;
  $('copy').disabled = records.length === 0;
  $('summary').textContent = summary(a);
  const seen = new Map();
  for (const n of a.notes) {
    const lines = seen.get(n.text) || [];
    if (lines.push(n.line) === 1) seen.set(n.text, lines);
  }
  for (const [note, lines] of seen) {
    const more = lines.length > 3 ? ` and ${lines.length - 3} more` : '';
    $('notes').append(el('p', 'note', `Line ${lines.slice(0, 3).join(', ')}${more}: ${note}`));
  }
  let run = [];
  const means = new Set();
  for (const f of a.findings) {
    if (f.kind === 'flush' && (a.first > 0 || run.length > 0)) {
      run.push(f);
      continue;
    }
    flushes(run, means);
    run = f.kind === 'flush' ? [f] : [];
    if (f.kind !== 'flush') $('findings').append(card(f, means));
  }
  flushes(run, means);
  const total = a.first + a.flushes + a.further;
  if (total > a.findings.length) {
    $('findings').append(el('p', 'note', `${total - a.findings.length} more are not shown here; verbs decode shows them all.`));
  }
}

function summary(a) {
  const total = a.first + a.flushes + a.further;
  if (total === 0) {
    return a.notes.length > 0 ? 'No mlx5 completion error in this text.'
      : 'No failed completion found. The last 16 bytes of a dump matter most; in lines, a status, a syndrome or a vendor code.';
  }
  const parts = [];
  if (a.first > 0) parts.push(`${a.first} first error${a.first > 1 ? 's' : ''}`);
  if (a.further > 0) parts.push(`${a.further} further on a QP that had failed`);
  if (a.flushes > 0) parts.push(`${a.flushes} flush${a.flushes > 1 ? 'es' : ''}`);
  return `${total} failed completion${total > 1 ? 's' : ''}: ${parts.join(', ')}.`;
}

// flushes shows a row of them folded, because they are consequences.
function flushes(run, means) {
  if (run.length === 0) return;
  if (run.length === 1) {
    $('findings').append(card(run[0], means));
    return;
  }
  const box = el('details', '', el('summary', '', `${run.length} flushes: requests that were not tried because their QP had failed`));
  for (const f of run) box.append(card(f, means));
  $('findings').append(box);
}

// card shows one finding. What an error means is said once.
function card(f, means) {
  const c = el('article', f.kind, el('h2', '', f.title), el('p', 'where', f.where));
  if (f.role) c.append(el('p', f.kind === 'first' ? 'role cause' : 'role', f.role));
  if (means.has(f.means)) {
    c.append(el('p', 'where', 'What it means and what to look at: as above.'));
  } else {
    means.add(f.means);
    c.append(el('h3', '', 'What it usually means'), el('p', '', f.means));
    if (f.look && f.look.length > 0) {
      c.append(el('h3', '', 'Look at first'), el('ol', '', ...f.look.map((l) => el('li', '', l))));
    }
  }
  const facts = el('dl', '');
  for (const x of f.facts) facts.append(el('dt', '', x.Name), el('dd', x.Name === 'bytes' ? 'bytes' : '', x.Value));
  for (const n of f.notes || []) facts.append(el('dt', '', 'note'), el('dd', '', n));
  c.append(facts);
  return c;
}

function fill(text) {
  $('text').value = text;
  show();
}

globalThis.decoderReady = () => {
  $('text').addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(show, 120);
  });
  $('example').addEventListener('click', () => fill(example));
  $('clear').addEventListener('click', () => { fill(''); $('text').focus(); });
  $('file').addEventListener('change', async () => {
    const file = $('file').files[0];
    if (file) fill(await file.text());
    $('file').value = '';
  });
  $('copy').addEventListener('click', async () => {
    await navigator.clipboard.writeText(JSON.stringify(records, null, 1));
    $('copy').textContent = 'Copied';
    setTimeout(() => { $('copy').textContent = 'Copy as JSON'; }, 1500);
  });
  document.addEventListener('dragover', (e) => e.preventDefault());
  document.addEventListener('drop', async (e) => {
    e.preventDefault();
    if (e.dataTransfer.files.length > 0) fill(await e.dataTransfer.files[0].text());
  });
  show();
};

(async () => {
  try {
    const go = new Go();
    const module = await WebAssembly.instantiateStreaming(fetch('decode.wasm'), go.importObject);
    go.run(module.instance);
  } catch (err) {
    $('summary').textContent = `The decoder could not be loaded: ${err.message}. A browser with WebAssembly is needed.`;
  }
})();
