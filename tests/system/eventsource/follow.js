// Follow one build as a browser would and print a line per thing seen: {"open": n}, {"error": …} or the event.
import { EventSource } from "eventsource";

const say = (seen) => process.stdout.write(`${JSON.stringify(seen)}\n`);
const events = new EventSource(process.argv[2]);
let opened = 0;
events.onopen = () => say({ open: ++opened });
events.onerror = (error) => {
  say({ error: error.code ?? error.message ?? "closed", closed: events.readyState === EventSource.CLOSED });
  if (events.readyState === EventSource.CLOSED) process.exitCode = 0;
};
const kinds = process.argv.slice(3);
for (const kind of kinds) {
  events.addEventListener(kind, ({ lastEventId, data }) => say({ id: lastEventId, event: JSON.parse(data) }));
}
