# The two images of a release: `docker build --target operator .` and `docker build --target mover .`
# Only the mover carries engines. For clusters of the development tools see `cargo xtask deploy`, which needs no
# container engine.

FROM docker.io/library/rust:1.95-bookworm AS build
WORKDIR /holdfast
COPY . .
RUN cargo build --locked --release --package=holdfast-operator --package=holdfast-mover

# The Kopia engine drives the official program. The version is pinned: what it prints is read.
FROM docker.io/kopia/kopia:0.23.1 AS kopia

FROM gcr.io/distroless/cc-debian12:nonroot AS operator
COPY --from=build /holdfast/target/release/holdfast-operator /usr/bin/holdfast-operator
USER 65532:65532
ENTRYPOINT ["/usr/bin/holdfast-operator"]

FROM gcr.io/distroless/cc-debian12:nonroot AS mover
COPY --from=build /holdfast/target/release/holdfast-mover /usr/bin/holdfast-mover
COPY --from=kopia /bin/kopia /usr/bin/kopia
USER 65532:65532
ENTRYPOINT ["/usr/bin/holdfast-mover"]
