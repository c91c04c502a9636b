// A real OAuth 2.1 authorization server on npm `oidc-provider`, with nobody at the keyboard: every authorization is
// granted to the user of the moment. It registers clients dynamically (RFC 7591), wants PKCE S256, binds tokens to the
// resource that was asked for (RFC 8707), refreshes, revokes (RFC 7009) and introspects (RFC 7662).
//
// node idp.mjs [--port N] [--user NAME] [--alg RS256|ES256] [--ttl SECONDS] [--format jwt|opaque]
// Port 0 takes a free one. Prints `listening <issuer>` once it serves.
//
// POST /control with a JSON object changes what happens from then on, and GET /control says what has happened:
//   user      who is logged in by the next authorization; `nobody` refuses
//   alg       RS256 or ES256, for the next token
//   ttl       seconds that the next tokens live
//   stale     how many of the next access tokens are issued an hour too late
//   refresh   whether refresh tokens are issued: true, false, or `offline` for clients with the scope `offline_access`
//             alone, which is the provider's default and needs `prompt=consent`
//   format    jwt or opaque
//   keys      `add`: sign with new keys, keep the old ones published; `replace`: the old ones are gone
//   down      true: every other connection is cut without an answer
//
// Two clients are known from the start: `machine` (secret `machine-secret`, client credentials) and `weir` (secret
// `weir-secret`, which introspects). Not a model for a real provider: it trusts everybody.

import { randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import { parseArgs } from 'node:util';

import { exportJWK, generateKeyPair } from 'jose';
import { Provider, errors } from 'oidc-provider';

/** What a token may be good for. */
const SCOPES = ['mcp', 'tools:read', 'tools:write', 'admin'];

/** The groups of a user, as the claim `groups`. */
const GROUPS = { ada: ['staff', 'engineers'], bob: ['guests'] };

/** How late a stale token is: more than any leeway. */
const STALE_SECONDS = 3600;

const { values: flags } = parseArgs({
    options: {
        port: { type: 'string', default: '0' },
        user: { type: 'string', default: 'ada' },
        alg: { type: 'string', default: 'RS256' },
        ttl: { type: 'string', default: '600' },
        format: { type: 'string', default: 'jwt' }
    }
});

const now = { user: flags.user, alg: flags.alg, ttl: Number(flags.ttl), format: flags.format, stale: 0, refresh: true };
const seen = { discovery: 0, jwks: 0, registrations: 0, authorizations: 0, introspections: 0, grants: {} };
const clients = [
    {
        client_id: 'machine',
        client_secret: 'machine-secret',
        grant_types: ['client_credentials'],
        redirect_uris: [],
        response_types: []
    },
    { client_id: 'weir', client_secret: 'weir-secret', grant_types: [], redirect_uris: [], response_types: [] }
];
const cookieKey = randomBytes(32).toString('hex');
let keys = await freshKeys();
let down = false;
let issuer;
let provider;

const http = createServer((request, response) => {
    void serve(request, response).catch(error => {
        console.error(error);
        response.writeHead(500).end();
    });
});
http.listen(Number(flags.port), '127.0.0.1', () => {
    issuer = `http://127.0.0.1:${http.address().port}`;
    provider = build();
    console.log(`listening ${issuer}`);
});

async function serve(request, response) {
    const url = new URL(request.url, issuer);
    const { pathname } = url;
    if (pathname === '/control') return control(request, response);
    if (down) return request.socket.destroy();
    if (pathname.startsWith('/interaction/')) return interact(request, response);
    if (pathname.startsWith('/.well-known/')) seen.discovery += 1;
    if (pathname === '/auth') request.url = withDefaultScope(url);
    if (pathname === '/jwks') seen.jwks += 1;
    if (pathname === '/token/introspection') seen.introspections += 1;
    if (pathname === '/reg') {
        seen.registrations += 1;
        // A scope named at registration would bind the client to it for good, and no client could ever ask for more.
        const { scope: _, ...metadata } = JSON.parse(await bodyOf(request));
        request.body = metadata;
    }
    await provider.callback()(request, response);
}

/** Who asks for no scope gets the default one (RFC 6749, 3.3), as at most providers; `oidc-provider` would refuse. */
function withDefaultScope(url) {
    const asked = (url.searchParams.get('scope') ?? '').split(' ');
    if (!asked.some(scope => SCOPES.includes(scope))) url.searchParams.set('scope', ['mcp', ...asked].join(' ').trim());
    return url.pathname + url.search;
}

async function control(request, response) {
    if (request.method === 'POST') {
        const { keys: change, down: isDown = down, ...rest } = JSON.parse(await bodyOf(request));
        down = isDown;
        Object.assign(now, rest);
        if (change !== undefined) {
            const fresh = await freshKeys();
            keys = change === 'add' ? [...fresh, ...keys] : fresh;
            // Clients, grants and refresh tokens are kept by the adapter, which both providers share.
            provider = build();
        }
    }
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ ...now, ...seen }));
}

/** The user of the moment logs in and consents to everything that was asked for. */
async function interact(request, response) {
    const { prompt, params, session } = await provider.interactionDetails(request, response);
    const accountId = params.login_hint ?? now.user;
    if (accountId === 'nobody') {
        const refusal = { error: 'access_denied', error_description: 'the user said no' };
        return provider.interactionFinished(request, response, refusal, { mergeWithLastSubmission: false });
    }
    if (prompt.name === 'login') {
        return provider.interactionFinished(request, response, { login: { accountId } });
    }
    const grant = new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
    grant.addOIDCScope('openid offline_access');
    for (const resource of [params.resource ?? []].flat()) grant.addResourceScope(resource, params.scope ?? '');
    const consent = { grantId: await grant.save() };
    return provider.interactionFinished(request, response, { consent });
}

function build() {
    const built = new Provider(issuer, {
        clients,
        jwks: { keys },
        cookies: { keys: [cookieKey] },
        pkce: { required: () => true },
        responseTypes: ['code'],
        findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ sub }) }),
        interactions: { url: (_, { uid }) => `/interaction/${uid}` },
        issueRefreshToken: (_, client, { scopes }) =>
            client.grantTypeAllowed('refresh_token') &&
            (now.refresh === 'offline' ? scopes.has('offline_access') : now.refresh),
        extraTokenClaims: (_, token) => ({ groups: GROUPS[token.accountId] ?? [] }),
        formats: { customizers: { jwt: (_, token, jwt) => age(jwt) } },
        features: {
            clientCredentials: { enabled: true },
            devInteractions: { enabled: false },
            introspection: { enabled: true, allowedPolicy: (_, client) => client.clientId === 'weir' },
            registration: { enabled: true },
            resourceIndicators: { enabled: true, getResourceServerInfo: resourceServer },
            revocation: { enabled: true }
        },
        renderError: (ctx, out, error) => {
            ctx.type = 'json';
            ctx.body = { ...out, detail: error.message };
        },
        ttl: Object.fromEntries(['Grant', 'IdToken', 'Interaction', 'RefreshToken', 'Session'].map(kind => [kind, 3600]))
    });
    built.on('grant.success', ({ oidc }) => {
        const grant = oidc.params.grant_type;
        seen.grants[grant] = (seen.grants[grant] ?? 0) + 1;
    });
    built.on('authorization.success', () => (seen.authorizations += 1));
    built.on('server_error', (_, error) => console.error(error));
    return built;
}

/** Tokens are for MCP servers on this machine; whoever asks for another resource gets none. */
function resourceServer(_, resource) {
    if (!['127.0.0.1', 'localhost'].includes(new URL(resource).hostname)) throw new errors.InvalidTarget();
    return {
        scope: SCOPES.join(' '),
        audience: resource,
        accessTokenTTL: now.ttl,
        accessTokenFormat: now.format,
        jwt: { sign: { alg: now.alg } }
    };
}

/** Makes the next token as old as `stale` wants it. */
function age(jwt) {
    if (now.stale < 1) return;
    now.stale -= 1;
    jwt.payload.iat -= STALE_SECONDS;
    jwt.payload.exp = jwt.payload.iat + 60;
}

async function freshKeys() {
    const made = await Promise.all(['RS256', 'ES256'].map(alg => generateKeyPair(alg, { extractable: true })));
    const jwks = await Promise.all(made.map(({ privateKey }) => exportJWK(privateKey)));
    return jwks.map((jwk, nth) => ({
        ...jwk,
        alg: nth === 0 ? 'RS256' : 'ES256',
        use: 'sig',
        kid: randomBytes(8).toString('hex')
    }));
}

async function bodyOf(request) {
    let text = '';
    for await (const chunk of request.setEncoding('utf8')) text += chunk;
    return text;
}
