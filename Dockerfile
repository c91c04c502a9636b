# Build in one image, run in another that has nothing but the binary and root certificates.
FROM rust:1.90-bookworm AS build
# aws-lc-rs builds C code.
RUN apt-get update && apt-get install -y --no-install-recommends cmake && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked -p weir-gateway --bin weir && cp target/release/weir /weir

FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /weir /usr/local/bin/weir
USER nonroot
# Clients; operators (health and metrics).
EXPOSE 8080 8081
# On SIGTERM weir drains; a second one cuts that short.
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/weir"]
CMD ["serve", "--config", "/etc/weir/weir.yaml"]
