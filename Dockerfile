# One image with one program, of which every service is a command. Both bases are Debian 12, so
# that what is built against its glibc runs on it. The simulated API server, for docker-compose.yml, is an
# image of its own: `--target simapi`.
#
# Other bases, as copies in a registry of your own: `--build-arg BUILDER=… --build-arg RUNTIME=…`. BUILDER has Rust, a C compiler,
# and make or apt. RUNTIME has glibc, libgcc and certificates. No tag of RUNTIME names a version, so a release gives both by digest.
ARG BUILDER=rust:1.95.0-slim-bookworm
ARG RUNTIME=gcr.io/distroless/cc-debian12:nonroot

FROM ${BUILDER} AS build
# jemalloc is built with make; everything else needs only the compiler that is there.
RUN command -v make \
    || { apt-get update \
        && apt-get install --no-install-recommends --yes make \
        && rm -rf /var/lib/apt/lists/*; }
# Writes the list of crates into the program: `cargo audit bin` and scanners of images read it there.
ARG CARGO_AUDITABLE=0.7.7
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    command -v cargo-auditable \
    || cargo install --locked cargo-auditable@"$CARGO_AUDITABLE"
WORKDIR /src
COPY . .
# The registry and the target folder outlive the build, so the program is copied out of them.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo auditable build --release --locked --package anteroom \
    && mkdir /out \
    && cp target/release/anteroom /out/ \
    && for login in server system operator watcher replica webhook reporter; do mkdir -p /keys/$login; done

FROM build AS build-simapi
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --package anteroom-simapi \
    && cp target/release/anteroom-simapi /

FROM ${RUNTIME} AS simapi
COPY --from=build-simapi /anteroom-simapi /usr/local/bin/
USER 65532:65532
CMD ["/usr/local/bin/anteroom-simapi"]

# glibc, libgcc and the system's certificates; no shell, no package manager; user 65532.
FROM ${RUNTIME}
COPY --from=build /out/ /usr/local/bin/
# Where docker-compose.yml mounts volumes for keys: a new volume takes over whose folder it is.
COPY --from=build --chown=65532:65532 /keys/ /keys/
USER 65532:65532
CMD ["/usr/local/bin/anteroom", "--help"]
