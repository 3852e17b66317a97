# Targets with a Kubernetes cluster, for a Makefile that includes this file:
#
#   include coracle.mk
#   CORACLE_RUN = --nodes 2 --image app.tar --manifest deploy/ --rollout
#
#   make e2e-in-cluster     runs the target e2e with a new cluster, which is removed afterwards
#   make cluster            makes a cluster that stays, and adds it to your kubeconfig; make cluster-down removes it
#   make cluster-images     loads CORACLE_IMAGES into its nodes: archives, or names of images in Docker
CORACLE        ?= coracle
CORACLE_RUN    ?=
CORACLE_UP     ?=
CORACLE_NAME   ?= local
CORACLE_IMAGES ?=
# sudo resets PATH
CORACLE_ROOT   ?= $(if $(filter 0,$(shell id -u)),,sudo env "PATH=$$PATH")

%-in-cluster:
	+$(CORACLE_ROOT) $(CORACLE) run $(CORACLE_RUN) -- $(MAKE) $*

.PHONY: cluster cluster-images cluster-down
cluster:
	$(CORACLE_ROOT) $(CORACLE) up $(CORACLE_NAME) $(CORACLE_UP)

cluster-images:
	$(CORACLE_ROOT) $(CORACLE) images load --name $(CORACLE_NAME) $(CORACLE_IMAGES)

cluster-down:
	$(CORACLE_ROOT) $(CORACLE) down $(CORACLE_NAME)
