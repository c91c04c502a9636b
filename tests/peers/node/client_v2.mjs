// The client of the TypeScript SDK 2.x, in either era. See driver.mjs for the command line; here also
// `--era modern|legacy|auto`: a pinned modern version, the legacy handshake, or whatever the probe finds.

import {
    Client,
    LOG_LEVEL_META_KEY,
    StreamableHTTPClientTransport,
    UnauthorizedError,
    applyMiddlewares,
    auth,
    withLogging,
    withOAuth
} from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

import { ASKED, answers, proposing, run, streamWatch } from './driver.mjs';
import { Account, withUser } from './oauth.mjs';
import { callAsTask } from './task.mjs';

const MODES = { modern: { pin: '2026-07-28' }, legacy: 'legacy', auto: 'auto' };

await run(
    async given => {
        const mode = MODES[given.era];
        if (mode === undefined) throw new Error(`--era ${given.era}: modern, legacy or auto`);
        const [command, ...args] = given.url.split(' ');
        const stream = streamWatch();
        const account = new Account();
        const opened = {};
        const open = async () => {
            opened.client = new Client(
                { name: 'driver-v2', version: '1.0.0' },
                // What is seen must come from the server, not from the client's cache.
                { versionNegotiation: { mode }, defaultCacheTtlMs: 0, capabilities: given.asks ? ASKED : {} }
            );
            if (given.asks) {
                opened.client.setRequestHandler('elicitation/create', answers.elicit);
                opened.client.setRequestHandler('sampling/createMessage', answers.sample);
                opened.client.setRequestHandler('roots/list', answers.roots);
            }
            opened.transport = given.stdio
                ? new StdioClientTransport({ command, args })
                : overHttp(given, stream.fetch, account);
            await opened.client.connect(proposing(opened.transport, given.revision));
        };
        const withLogin = act => withUser(act, isUnauthorized, () => finish(given, account));
        await withLogin(open);
        return { account, streamRequests: stream.requests, ...peer(opened, { ...given, withLogin, opened: given.stdio ? undefined : stream.opened }) };
    },
    { era: { type: 'string', default: 'auto' } }
);

/** `--auth sdk` is the transport's own OAuth client, `--auth middleware` the one that wraps any fetch. */
function overHttp({ url, auth: how }, fetch, account) {
    if (how === 'none') return new StreamableHTTPClientTransport(new URL(url), { fetch });
    if (how === 'sdk') return new StreamableHTTPClientTransport(new URL(url), { fetch, authProvider: account });
    const logger = ({ method, status }) => console.log(JSON.stringify({ event: 'http', method, status }));
    const wrapped = applyMiddlewares(withOAuth(account, url), withLogging({ logger }))(fetch);
    return new StreamableHTTPClientTransport(new URL(url), { fetch: wrapped });
}

/** The user came back: the code becomes a token, once `iss` (RFC 9207) was found right. */
async function finish({ url }, account) {
    const callback = account.takeCallback();
    await auth(account, { serverUrl: url, authorizationCode: callback.get('code'), iss: callback.get('iss') });
}

function isUnauthorized(error) {
    // An error on the way of a version probe arrives wrapped.
    for (let at = error; at instanceof Error; at = at.cause) if (at instanceof UnauthorizedError) return true;
    return false;
}

function peer({ client, transport }, given) {
    const modern = client.getProtocolEra() === 'modern';
    let meta;
    return {
        about: {
            era: client.getProtocolEra(),
            protocolVersion: client.getNegotiatedProtocolVersion(),
            server: client.getServerVersion(),
            instructions: client.getInstructions()
        },
        library: client,
        async *pages() {
            // Without a cursor this client walks all pages itself, and only then keeps the output schemas.
            const { tools } = await client.listTools(undefined, { cacheMode: 'refresh' });
            yield tools;
        },
        call: (name, args, options) =>
            given.withLogin(() => client.callTool({ name, arguments: args, ...(meta && { _meta: meta }) }, options)),
        task: (name, args, onStatus) => callAsTask(client, given.url, { name, args, onStatus }),
        onToolsChanged: async then => {
            client.setNotificationHandler('notifications/tools/list_changed', () => then());
            if (modern) await client.listen({ toolsListChanged: true });
            else await given.opened;
        },
        subscribe: async (uri, then) => {
            client.setNotificationHandler('notifications/resources/updated', note => then(note.params.uri));
            if (modern) return client.listen({ resourceSubscriptions: [uri] });
            await given.opened;
            await client.subscribeResource({ uri });
        },
        logAt: async (level, then) => {
            client.setNotificationHandler('notifications/message', note => then(note.params));
            if (!level) return;
            if (modern) meta = { [LOG_LEVEL_META_KEY]: level };
            else if (client.getServerCapabilities()?.logging) await client.setLoggingLevel(level);
        },
        checkFailed: error => /structured content|output schema/i.test(error.message),
        close: async () => {
            if (!given.stdio) await transport.terminateSession();
            await client.close();
        }
    };
}
