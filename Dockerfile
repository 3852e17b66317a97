# The container image of coracle, built from source: docker build -t coracle .
# `make image` makes the same image without an engine; docs/docker.md says how to run it.

# The build image: any image with Debian 12, Go, gcc, git and make works. Node.js builds the page of coracle dashboard.
ARG BUILDER=golang:1.26-bookworm
ARG NODE=node:22-bookworm-slim

FROM ${NODE} AS node

FROM ${BUILDER} AS build
COPY --from=node /usr/local/ /usr/local/
WORKDIR /src
COPY . .
RUN scripts/image tree /image

FROM scratch
COPY --from=build /image/ /
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/coracle/busybox.d
VOLUME /var/lib/coracle /var/lib/kubelet
EXPOSE 6443
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=10s --start-period=60s --retries=3 CMD ["/usr/bin/coracle", "wait", "--quiet", "--timeout=0"]
ENTRYPOINT ["/usr/bin/coracle"]
