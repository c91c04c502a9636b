# syntax=docker/dockerfile:1.7
# Two stages: the build, and a runtime image with the binary, glibc and root certificates, without a shell or a package manager.
# glibc, because aws-lc-rs (TLS) and mimalloc are C code and are tested with it.

FROM rust:1.90-bookworm AS build
# aws-lc-rs needs cmake for its C code, `cargo xtask dist` llvm-profdata and llvm-bolt.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends cmake llvm-19 bolt-19 && rm -rf /var/lib/apt/lists/*
# The generator of the SBOM.
RUN cargo install --locked cargo-cyclonedx@0.5.9
WORKDIR /src
COPY . .
# Two builds: the first counts the branches that a load takes through it, the second is optimized by the counts, and its code
# is laid out by a second load.
# The cache mounts keep compiled dependencies: a change of weir's code recompiles weir alone.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo xtask dist \
    && install -D target/dist/weir /out/usr/local/bin/weir
# The SBOM of the binary, in CycloneDX.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    cargo cyclonedx --manifest-path crates/gateway/Cargo.toml --format json --override-filename sbom \
    && install -D --mode=644 crates/gateway/sbom.json /out/usr/share/doc/weir/sbom.cdx.json
# Shell completions, for an installation from this image by `docker cp`.
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
# The user `nonroot` as a number: `runAsNonRoot` of Kubernetes rejects a name.
USER 65532:65532
# The default of `--config`.
ENV WEIR_CONFIG=/etc/weir/weir.yaml
# The default of `--address-file`, in memory, also with a read-only root: HEALTHCHECK reads it, so that an edit that breaks the
# config of a running weir does not make the container unhealthy.
ENV WEIR_ADDRESS_FILE=/dev/shm/weir-addresses.json
# 8080: clients. 8081: operators (health, metrics).
EXPOSE 8080 8081
# SIGTERM drains; a second SIGTERM ends the drain.
STOPSIGNAL SIGTERM
# Liveness, not readiness: a container that drains or waits for an issuer's keys must not be restarted.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 CMD ["/usr/local/bin/weir", "health", "--alive"]
ENTRYPOINT ["/usr/local/bin/weir"]
CMD ["serve"]
