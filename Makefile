# SPDX-License-Identifier: MIT
#
# For the habit of typing make: everything is done by meson and ninja.
#   make            build/quern and the library (BUILD=dir for another place)
#   make test       the tests of a release build (./test.sh; ./test.sh --full is everything)
#   make bench      the speed of this build on MODEL=file.gguf; bench/compare holds it against a peer
#   make install    into PREFIX (DESTDIR is honoured)
#   make dist, make deb, make static
#                   a release's tarball, Debian packages, a tarball for machines without the libraries
#                   (tools/package); with BUILD=dir of what is compiled there

BUILD ?= build
PREFIX ?= /usr/local
MODEL ?= models/stories15M-q8_0.gguf

all: $(BUILD)/build.ninja
	ninja -C $(BUILD)

$(BUILD)/build.ninja:
	meson setup $(BUILD) --buildtype=release --prefix=$(PREFIX)

test:
	./test.sh

bench: all
	$(BUILD)/quern bench $(MODEL)

install: all
	meson configure $(BUILD) --prefix=$(PREFIX)
	meson install -C $(BUILD)

dist:
	tools/package dist

deb static:
	tools/package $@ $(if $(filter command environment,$(origin BUILD)),$(BUILD))

clean:
	rm -rf $(BUILD)

.PHONY: all test bench install dist deb static clean
