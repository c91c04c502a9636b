// Holds what weir said of tasks of the extension in a run of the tests against the types of `@modelcontextprotocol/ext-tasks`:
// the SDK for Python, whose types hold everything else (`python/emitted.py`), has none for them.
//
//   emitted.mjs FOLDER [--whole]
//
// FOLDER is the one that the other program reads. With --whole hardly any message at all is a failure too.

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import * as tasks from '@modelcontextprotocol/ext-tasks/core/v2';

const REVISION = '2026-07-28';
// A run of all tests keeps several times as many.
const FEWEST = 25;

const REQUESTS = {
    'tasks/get': tasks.GetTaskRequestV2Schema,
    'tasks/update': tasks.UpdateTaskRequestV2Schema,
    'tasks/cancel': tasks.CancelTaskRequestV2Schema,
    'notifications/tasks': tasks.TaskStatusNotificationV2Schema
};
const RESULTS = {
    'tasks/get': tasks.GetTaskResultV2Schema,
    'tasks/update': tasks.UpdateTaskResultV2Schema,
    'tasks/cancel': tasks.CancelTaskResultV2Schema
};

/** What a message has to be; undefined where it is not about tasks. Errors have no types of their own. */
function typed({ revision, answered, message }) {
    if (revision !== REVISION) return undefined;
    if (message.method) return REQUESTS[message.method] && [REQUESTS[message.method], message];
    if (message.result?.resultType === 'task') return [tasks.CreateTaskResultV2Schema, message.result];
    return message.result && RESULTS[answered] && [RESULTS[answered], message.result];
}

const [folder, whole] = process.argv.slice(2);
const files = readdirSync(folder).filter(name => name.endsWith('.jsonl'));
const lines = new Set(files.flatMap(name => readFileSync(join(folder, name), 'utf8').split('\n')).filter(Boolean));
let held = 0;
let wrong = 0;
for (const line of [...lines].sort()) {
    const found = typed(JSON.parse(line));
    if (!found) continue;
    const [schema, value] = found;
    const outcome = schema.safeParse(value);
    if (outcome.success) {
        held += 1;
    } else {
        wrong += 1;
        console.log(`weir said of tasks what the types refuse: ${outcome.error}\n  ${line.slice(0, 2000)}`);
    }
}
console.log(`emitted: ${held} shapes about tasks of the extension hold, ${wrong} failed`);
const few = whole === '--whole' && held < FEWEST;
if (few) console.log(`that is too few: a run of all tests keeps ${FEWEST} at least`);
process.exitCode = wrong || few ? 1 : 0;
