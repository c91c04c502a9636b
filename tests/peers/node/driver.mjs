// What the Node client drivers share: the command line, the scenarios, and one JSON object a line of what was seen.
//
// node client_vN.mjs URL SCENARIO [TOOL] [ARGUMENTS as JSON] [--level L | none] [--timeout MS] [--trigger TOOL]
// node client_vN.mjs URL SCENARIO ... --stdio   (URL is then a command line, split at spaces)
// node client_vN.mjs URL SCENARIO ... --revision R   (initialize proposes this older revision)
// node client_vN.mjs URL SCENARIO ... --asks    (the client can be asked: an `asked` line for each question, which it answers)
// node client_v1.mjs URL SCENARIO ... --sse     (HTTP+SSE, the transport of 2024-11-05)
// node client_vN.mjs URL SCENARIO ... --auth sdk|middleware   (the SDK's OAuth client; it knows nothing but URL)
//
// node client_vN.mjs -    (command lines from standard input, each a JSON array of words on a line of its own, run one after the
//                          other with clients of their own; a `done` line follows each)
//
// Exits 0 when the scenario went as its name says, 1 with an `error` line when not, 2 on a wrong command line.

import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';

/** Longest wait of a whole scenario unless the command line says otherwise, in milliseconds. */
const TIMEOUT_MS = 30_000;

const scenarios = {
    list: async peer => print({ event: 'tools', names: await names(peer) }),
    call: async (peer, { tool, args }) => print({ event: 'result', result: await peer.call(tool, args) }),
    'call-progress': async (peer, { tool, args }) => {
        const onprogress = ({ progress, total, message }) => print({ event: 'progress', progress, total, message });
        print({ event: 'result', result: await peer.call(tool, args, { onprogress }) });
    },
    watch,
    subscribe,
    library,
    task: async (peer, { tool, args }) => {
        const result = await peer.task(tool, args, status => print({ event: 'task', status }));
        print({ event: 'result', result });
    },
    'unknown-tool': unknownTool,
    structured,
    refresh,
    logs: async (peer, { tool, args, level }) => {
        await peer.logAt(level === 'none' ? undefined : level, ({ level, logger, data }) => print({ event: 'log', level, logger, data }));
        print({ event: 'result', result: await peer.call(tool, args) });
    },
    cancel,
    abandon,
    calls
};

/**
 * Runs the scenario the command line names.
 *
 * @param {(given: object) => Promise<Peer>} connect opens the client; `given` has url, stdio and the driver's own flags
 * @param {object} ownFlags further options of this driver, as parseArgs takes them
 *
 * A Peer has `about` (what was negotiated), `account` (see oauth.mjs), `pages()`, `call(tool, args, options)`, `onToolsChanged(then)`,
 * `logAt(level, then)`, `task(tool, args, onStatus)` (a call that becomes a task), `checkFailed(error)`, `streamRequests()` (how many GET requests it made), `library` (prompts, resources and completion, by the SDK's own names) and `close()`.
 */
export async function run(connect, ownFlags = {}) {
    const words = process.argv.slice(2);
    if (words[0] === '-') {
        for await (const line of createInterface({ input: process.stdin })) {
            await runOne(connect, commandLine(ownFlags, JSON.parse(line)));
            if (process.exitCode === 1) break;
            print({ event: 'done' });
        }
    } else {
        await runOne(connect, commandLine(ownFlags, words));
    }
    // A client may keep a stream open that would hold the process.
    process.exit();
}

async function runOne(connect, given) {
    const late = setTimeout(() => {
        print({ event: 'error', message: `not done after ${given.timeout} ms` });
        process.exit(1);
    }, given.timeout);
    try {
        const peer = await connect(given);
        print({ event: 'connected', ...peer.about });
        await scenarios[given.scenario](peer, given);
        if (given.auth !== 'none') print({ event: 'account', logins: peer.account.logins, tokens: peer.account.saved });
        await peer.close();
    } catch (error) {
        print({ event: 'error', code: error.code, message: error.message, data: error.data });
        process.exitCode = 1;
    } finally {
        clearTimeout(late);
    }
}

/**
 * A fetch that counts GET requests, and knows when the standing GET stream of a legacy session was answered. Only from then on can the server
 * tell this client that a list changed, and no SDK says when that is.
 */
export function streamWatch() {
    const { promise: opened, resolve } = resolvers();
    let requests = 0;
    const watchingFetch = async (url, init) => {
        if (init?.method === 'GET') requests += 1;
        const response = await fetch(url, init);
        if (init?.method === 'GET') resolve();
        return response;
    };
    return { fetch: watchingFetch, opened, requests: () => requests };
}

function commandLine(ownFlags, words) {
    const { values, positionals } = parseArgs({
        args: words,
        allowPositionals: true,
        options: {
            level: { type: 'string', default: 'info' },
            timeout: { type: 'string', default: `${TIMEOUT_MS}` },
            trigger: { type: 'string' },
            stdio: { type: 'boolean', default: false },
            revision: { type: 'string' },
            asks: { type: 'boolean', default: false },
            sse: { type: 'boolean', default: false },
            auth: { type: 'string', default: 'none' },
            ...ownFlags
        }
    });
    const [url, scenario, tool, args = '{}'] = positionals;
    if (url === undefined || !Object.hasOwn(scenarios, scenario ?? '')) {
        console.error(`usage: URL (${Object.keys(scenarios).join(' | ')}) [TOOL] [JSON]`);
        process.exit(2);
    }
    return { ...values, timeout: Number(values.timeout), url, scenario, tool, args: JSON.parse(args) };
}

/** The transport, whose client proposes another revision than its SDK's newest one. */
export function proposing(transport, revision) {
    if (revision === undefined) return transport;
    const send = transport.send.bind(transport);
    transport.send = (message, ...rest) => {
        const { method, params } = message;
        const changed = method === 'initialize' ? { ...message, params: { ...params, protocolVersion: revision } } : message;
        return send(changed, ...rest);
    };
    return transport;
}

function print(seen) {
    console.log(JSON.stringify(seen));
}

/** Walks all pages; prints one line for each. */
async function names(peer) {
    const all = [];
    for await (const page of peer.pages()) {
        const onPage = page.map(tool => tool.name);
        print({ event: 'page', count: onPage.length });
        all.push(...onPage);
    }
    return all;
}

/** Waits for list_changed. `--trigger TOOL` is called once the client listens, else the change comes from elsewhere. */
async function watch(peer, { trigger }) {
    print({ event: 'tools', names: await names(peer) });
    const { promise: changed, resolve } = resolvers();
    await peer.onToolsChanged(resolve);
    print({ event: 'watching' });
    if (trigger !== undefined) await peer.call(trigger, {});
    await changed;
    print({ event: 'list_changed', kind: 'tools' });
    print({ event: 'tools', names: await names(peer) });
}

/** Waits for an update of the resource that stands in the tool's place. `--trigger TOOL` is called once it is subscribed. */
async function subscribe(peer, { tool: uri, trigger }) {
    const { promise: updated, resolve } = resolvers();
    await peer.subscribe(uri, resolve);
    print({ event: 'subscribed' });
    if (trigger !== undefined) await peer.call(trigger, {});
    print({ event: 'updated', uri: await updated });
}

/**
 * Lists prompts, resources and templates, gets the prompt that stands in the tool's place, reads, and has an argument completed.
 * The arguments say with what: `arguments` of the prompt, URIs to `read`, and the `argument` to complete.
 */
async function library({ library }, { tool: prompt, args }) {
    const { prompts } = await library.listPrompts();
    print({ event: 'prompts', names: prompts.map(({ name }) => name) });
    const { messages } = await library.getPrompt({ name: prompt, arguments: args.arguments });
    print({ event: 'prompt', messages });
    const { resources } = await library.listResources();
    print({ event: 'resources', uris: resources.map(({ uri }) => uri) });
    const { resourceTemplates } = await library.listResourceTemplates();
    print({ event: 'templates', uris: resourceTemplates.map(({ uriTemplate }) => uriTemplate) });
    for (const uri of args.read) print({ event: 'read', contents: (await library.readResource({ uri })).contents });
    const ref = { type: 'ref/prompt', name: prompt };
    const { completion } = await library.complete({ ref, argument: args.argument });
    print({ event: 'completed', values: completion.values });
}

/** What a client with `--asks` says that it can do. */
export const ASKED = { sampling: { tools: {} }, elicitation: { form: {} }, roots: {} };

/** Its answers to `elicitation/create`, `sampling/createMessage` and `roots/list`, each printed as a question first. */
export const answers = {
    elicit: ({ params }) => {
        print({ event: 'asked', method: 'elicitation/create', message: params.message });
        const properties = Object.entries(params.requestedSchema.properties);
        const content = Object.fromEntries(properties.map(([name, schema]) => [name, filled(schema)]));
        return { action: 'accept', content };
    },
    sample: ({ params }) => {
        const { messages, tools = [] } = params;
        const blocks = messages.flatMap(({ content }) => content);
        const offered = tools.map(({ name }) => name);
        print({ event: 'asked', method: 'sampling/createMessage', message: blocks[0].text, tools: offered });
        const used = blocks.find(({ type }) => type === 'tool_result');
        if (offered.length > 0 && used === undefined) {
            const use = { type: 'tool_use', id: 'use-1', name: offered[0], input: { city: 'Riga' } };
            return { role: 'assistant', model: 'driver', stopReason: 'toolUse', content: [use] };
        }
        const text = used ? `a sampled text of ${used.content[0].text}` : 'a sampled text';
        return { role: 'assistant', model: 'driver', content: { type: 'text', text } };
    },
    roots: () => {
        print({ event: 'asked', method: 'roots/list' });
        return { roots: [{ uri: 'file:///srv/driver', name: 'driver' }] };
    }
};

/** A value that a field of a form takes. */
function filled({ type, default: given, enum: values, oneOf, format, items, minItems = 0, minLength = 0 }) {
    if (given !== undefined) return given;
    if (values !== undefined) return values[0];
    if (oneOf !== undefined) return oneOf[0].const;
    if (type === 'array') return Array.from({ length: minItems }, () => filled(items));
    if (type === 'boolean') return true;
    if (type === 'integer' || type === 'number') return 7;
    return { email: 'ada@example.com', uri: 'https://example.com/', date: '2026-01-31' }[format] ?? 'Ada'.padEnd(minLength, 'a');
}

/** `Promise.withResolvers` for a Node that has none yet. */
function resolvers() {
    let resolve;
    const promise = new Promise(settle => (resolve = settle));
    return { promise, resolve };
}

/** Calls again and again until SIGTERM. */
async function calls(peer, { tool, args }) {
    let ended = false;
    process.once('SIGTERM', () => (ended = true));
    let count = 0;
    while (!ended) {
        const result = await peer.call(tool, args);
        if (result.isError) throw new Error(`call ${count} failed: ${JSON.stringify(result)}`);
        if (count === 0) print({ event: 'calling' });
        count += 1;
    }
    print({ event: 'calls', count });
}

/** Calls until the client has got itself a second token. */
async function refresh(peer, { tool, args }) {
    do print({ event: 'result', result: await peer.call(tool, args) });
    while (peer.account.saved < 2);
}

/** A server refuses either by a JSON-RPC error or by an `isError` result; anything else is a failure. */
async function unknownTool(peer, { tool = 'no_such_tool' }) {
    try {
        const result = await peer.call(tool, {});
        if (!result.isError) throw new Error(`the tool ${tool} answered`);
        print({ event: 'refused', isError: true, message: result.content?.[0]?.text });
    } catch (error) {
        if (error.code === undefined) throw error;
        print({ event: 'refused', isError: false, code: error.code, message: error.message });
    }
}

/** The SDK checks structured content against the output schema it saw in the list. */
async function structured(peer, { tool, args }) {
    await names(peer);
    try {
        const result = await peer.call(tool, args);
        print({ event: 'accepted', structuredContent: result.structuredContent });
    } catch (error) {
        if (!peer.checkFailed(error)) throw error;
        print({ event: 'rejected', message: error.message });
    }
}

/** Aborts a call at its first note and then shows that the connection still serves. */
async function cancel(peer, { tool, args, level }) {
    const abort = new AbortController();
    const note = kind => {
        print({ event: kind });
        abort.abort('the user changed their mind');
    };
    await peer.logAt(level, () => note('log'));
    try {
        await peer.call(tool, args, { signal: abort.signal, onprogress: () => note('progress') });
    } catch (error) {
        if (!abort.signal.aborted) throw error;
        print({ event: 'cancelled', message: error.message });
        print({ event: 'tools', names: await names(peer) });
        return;
    }
    throw new Error('the call ended before it was cancelled');
}

/** How long a client that reconnects again and again has for that, in milliseconds. */
const RECONNECTION_TIME_MS = 2_000;

/** Gives a call up, and then shows that the client still hears of changes; prints how many GET requests it made. */
async function abandon(peer, { tool, args, trigger }) {
    const { promise: changed, resolve } = resolvers();
    await peer.onToolsChanged(resolve);
    try {
        await peer.call(tool, args, { timeout: 500 });
        throw new Error('the call ended before it was given up');
    } catch (error) {
        if (!/timed out/i.test(error.message)) throw error;
        print({ event: 'abandoned', message: error.message });
    }
    await new Promise(resolve => setTimeout(resolve, RECONNECTION_TIME_MS));
    await peer.call(trigger, {});
    await changed;
    print({ event: 'list_changed', kind: 'tools' });
    print({ event: 'streams', requests: peer.streamRequests() });
}
