# An image that is one static program: no shell, no other program, not root.
#
#   docker build --tag levada .                         builds from the source
#   docker build --tag levada --target packed .         packs target/image/ARCHITECTURE/levada
#
#   docker run --publish 8080:8080 levada
#   docker run --publish 8080:8080 --volume ./levada.toml:/etc/levada/levada.toml:ro levada

FROM docker.io/library/rust:1.95-alpine@sha256:606fd313a0f49743ee2a7bd49a0914bab7deedb12791f3a846a34a4711db7ed2 AS build
# A C compiler, for ring, mimalloc and zstd.
RUN apk add --no-cache build-base
WORKDIR /source
COPY . .
RUN cargo build --locked --profile dist --package levada

FROM scratch AS base
COPY packaging/container/root/ /
COPY packaging/www/ /usr/share/levada/www/
COPY LICENSE-APACHE LICENSE-MIT /usr/share/doc/levada/
# The directories that a node writes.
COPY --chown=65532:65532 packaging/container/writable/ /run/levada/
COPY --chown=65532:65532 packaging/container/writable/ /var/cache/levada/
USER 65532:65532
EXPOSE 8080 9181
ENTRYPOINT ["/usr/bin/levada"]
CMD ["run"]
# It asks the running node by the admin address of its configuration.
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s CMD ["/usr/bin/levada", "health"]

FROM base AS packed
ARG TARGETARCH=amd64
COPY --chmod=0755 target/image/${TARGETARCH}/levada /usr/bin/levada

FROM base AS image
COPY --from=build /source/target/dist/levada /usr/bin/levada
