// The client of the TypeScript SDK 2.x, in either era. See driver.mjs for the command line; here also
// `--era modern|legacy|auto`: a pinned modern version, the legacy handshake, or whatever the probe finds.

import { Client, LOG_LEVEL_META_KEY, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

import { run, streamWatch } from './driver.mjs';

const MODES = { modern: { pin: '2026-07-28' }, legacy: 'legacy', auto: 'auto' };

await run(
    async given => {
        const mode = MODES[given.era];
        if (mode === undefined) throw new Error(`--era ${given.era}: modern, legacy or auto`);
        const client = new Client(
            { name: 'driver-v2', version: '1.0.0' },
            // What is seen must come from the server, not from the client's cache.
            { versionNegotiation: { mode }, defaultCacheTtlMs: 0 }
        );
        const [command, ...args] = given.url.split(' ');
        const stream = streamWatch();
        const transport = given.stdio
            ? new StdioClientTransport({ command, args })
            : new StreamableHTTPClientTransport(new URL(given.url), { fetch: stream.fetch });
        await client.connect(transport);
        return peer(client, transport, { ...given, opened: given.stdio ? undefined : stream.opened });
    },
    { era: { type: 'string', default: 'auto' } }
);

function peer(client, transport, given) {
    const modern = client.getProtocolEra() === 'modern';
    let meta;
    return {
        about: {
            era: client.getProtocolEra(),
            protocolVersion: client.getNegotiatedProtocolVersion(),
            server: client.getServerVersion()
        },
        async *pages() {
            // Without a cursor this client walks all pages itself, and only then keeps the output schemas.
            const { tools } = await client.listTools(undefined, { cacheMode: 'refresh' });
            yield tools;
        },
        call: (name, args, options) =>
            client.callTool({ name, arguments: args, ...(meta && { _meta: meta }) }, options),
        onToolsChanged: async then => {
            client.setNotificationHandler('notifications/tools/list_changed', () => then());
            if (modern) await client.listen({ toolsListChanged: true });
            else await given.opened;
        },
        logAt: async (level, then) => {
            client.setNotificationHandler('notifications/message', note => then(note.params));
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
