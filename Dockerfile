# syntax=docker/dockerfile:1.7
# Built in one image, run in another that has nothing but the binary, the C library and root certificates: no shell, no package
# manager. The C library is glibc, because aws-lc-rs (TLS) and mimalloc are C and are tested with it.

FROM rust:1.90-bookworm AS build
# aws-lc-rs builds C code with cmake.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends cmake && rm -rf /var/lib/apt/lists/*
# Writes the bill of materials.
RUN cargo install --locked cargo-cyclonedx@0.5.9
WORKDIR /src
COPY . .
# The caches keep what dependencies were compiled to: a change of weir's own code compiles that alone.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --profile dist --locked --package weir-gateway --bin weir \
    && install -D target/dist/weir /out/usr/local/bin/weir
# What is in the binary, package by package: CycloneDX.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    cargo cyclonedx --manifest-path crates/gateway/Cargo.toml --format json --override-filename sbom \
    && install -D --mode=644 crates/gateway/sbom.json /out/usr/share/doc/weir/sbom.cdx.json
# For whoever installs weir from this image: docker cp.
RUN mkdir -p /out/usr/share/bash-completion/completions /out/usr/share/zsh/vendor-completions \
        /out/usr/share/fish/vendor_completions.d \
    && /out/usr/local/bin/weir completions bash > /out/usr/share/bash-completion/completions/weir \
    && /out/usr/local/bin/weir completions zsh > /out/usr/share/zsh/vendor-completions/_weir \
    && /out/usr/local/bin/weir completions fish > /out/usr/share/fish/vendor_completions.d/weir.fish

FROM gcr.io/distroless/cc-debian12:nonroot
LABEL org.opencontainers.image.title="weir" \
      org.opencontainers.image.description="A gateway for the Model Context Protocol" \
      org.opencontainers.image.source="https://github.com/weir-mcp/weir" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0"
COPY --from=build /out /
# `nonroot`, as a number: Kubernetes cannot tell from a name that it is not root.
USER 65532:65532
# `serve`, `check`, `health` and `explain` read it.
ENV WEIR_CONFIG=/etc/weir/weir.yaml
# Clients; operators (health, metrics).
EXPOSE 8080 8081
# On SIGTERM weir drains; a second one cuts that short.
STOPSIGNAL SIGTERM
# Alive, not ready: whoever restarts what is unhealthy must not restart a weir that drains or waits for an issuer's keys.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 CMD ["/usr/local/bin/weir", "health", "--alive"]
ENTRYPOINT ["/usr/local/bin/weir"]
CMD ["serve"]
