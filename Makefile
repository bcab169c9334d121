# idem: build, install and test with PGXS.
#
#   make demo      a payment sent three times, charged once
#   make example   a small shop in the browser (examples/checkout)
#   make check     every test tier, on throw-away clusters
#   make check-majors    every tier on 17 and 18, and pg_upgrade, in Debians of their own
#   make check-deep      crashes, cancels, clocks, sanitizers, memory: takes hours
#   make check-package   the Debian package, built, tested and installed in fresh ones
#   make installcheck-citus    the registry's tests distributed by Citus, where the server has it
#   make bench     the table of ratios against the same work by hand
#   make setup     only what these install first
#   make dist      idem-VERSION.zip of what is committed
#   make indent    formats src/
#   make, make install, make clean, make installcheck    as with any extension
#
# WERROR=1 makes warnings errors; PG_CONFIG=... chooses the server.

PG_CONFIG ?= pg_config
FRAME = setup demo example check check-majors check-deep bench indent check-package dist installcheck-citus

# PGXS has a "check" of its own that only explains why it cannot work, and on
# a fresh machine there is no PGXS at all.  So whoever asks for one of our own
# targets gets a Makefile without PGXS; what else was asked for, and every
# step that needs PGXS, is a make of its own.
ifneq (,$(filter $(FRAME),$(MAKECMDGOALS)))

export PG_CONFIG
OTHERS = $(filter-out $(FRAME),$(MAKECMDGOALS))

$(FRAME):
	@tools/$@
$(OTHERS):
	@$(MAKE) --no-print-directory $@
.NOTPARALLEL:
.PHONY: $(FRAME) $(OTHERS)

else

EXTENSION = idem
EXTVERSION := $(shell sed -n "s/^default_version *= *'\(.*\)'/\1/p" idem.control)
MODULE_big = idem
OBJS = $(patsubst %.c,%.o,$(sort $(wildcard src/*.c)))

# The script of the current version is made of its parts; scripts of released
# versions and the deltas between them are files of their own.
SCRIPT = sql/idem--$(EXTVERSION).sql
PARTS = $(sort $(wildcard sql/[0-9][0-9]_*.sql))
DATA_built = $(SCRIPT)
DATA = $(filter-out $(SCRIPT),$(sort $(wildcard sql/idem--*.sql)))

# The two that are switched off are what PostgreSQL's macros and the argument
# lists of its callbacks set off.  The prefix map makes the library the same
# wherever it is built.
PG_CFLAGS = -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare \
	-ffile-prefix-map=$(CURDIR)=.
ifneq (,$(filter-out 0,$(WERROR)))
PG_CFLAGS += -Werror
endif

# Bitcode for inlining into JIT needs clang and gains nothing here.
ifneq (command line,$(origin with_llvm))
override with_llvm = no
endif

REGRESS = $(sort $(patsubst test/sql/%.sql,%,$(wildcard test/sql/*.sql)))
ISOLATION = $(sort $(patsubst test/specs/%.spec,%,$(wildcard test/specs/*.spec)))

# What has to work where idem.key is distributed or partitioned: all tests but
# those of the plain table itself, and of what does not touch it.
APART = settings altered table_changed once_table_pages call_page race_index race_hint canonical child diagram lint export \
	attach% define% guard% history% tick% version% token% lease% window% branch% \
	fence_table race_branch race_define race_guard race_history% race_lease% \
	race_tick race_token race_version race_warm race_window
REGISTRY := $(filter-out $(APART),$(sort $(patsubst test/sql/%.sql,%,$(wildcard test/sql/*.sql))))
REGISTRY_RACES := $(filter-out $(APART),$(sort $(patsubst test/specs/%.spec,%,$(wildcard test/specs/*.spec))))

REGRESS_OPTS = --inputdir=test --load-extension=idem
ISOLATION_OPTS = --inputdir=test --outputdir=. --load-extension=idem
TAP_TESTS ?= 1
PROVE_TESTS = test/t/*.pl

# Both tiers share expected/, and pg_regress would run sql/NAME.sql in place
# of test/sql/NAME.sql.
CLASH = $(sort $(filter $(REGRESS),$(ISOLATION)) \
	$(filter $(REGRESS) $(ISOLATION),$(patsubst sql/%.sql,%,$(wildcard sql/*.sql))))
ifneq (,$(strip $(CLASH)))
$(error test names used twice, in test/sql, test/specs or sql: $(CLASH))
endif

EXTRA_CLEAN = results output_iso tmp_check tmp_check_iso \
	src/*.gcda src/*.gcno src/*.gcov

PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)
ifeq (,$(wildcard $(PGXS)))
ifeq (,$(filter clean distclean maintainer-clean,$(MAKECMDGOALS)))
$(error PostgreSQL's extension building files are not there: run "make setup", or give PG_CONFIG=/path/to/pg_config)
endif
clean distclean maintainer-clean:
	rm -rf $(OBJS) $(OBJS:.o=.bc) idem.so $(DATA_built) $(EXTRA_CLEAN)
else
include $(PGXS)

# The server's own OpenSSL, where its headers are at hand: see src/digest.c.
ifneq (,$(filter -lcrypto,$(LIBS)))
ifneq (,$(shell $(CC) -E -x c -include openssl/evp.h /dev/null >/dev/null 2>&1 && echo yes))
override CPPFLAGS += -DIDEM_OPENSSL
SHLIB_LINK += -lcrypto
endif
endif

$(OBJS): $(wildcard src/*.h) Makefile

$(SCRIPT): $(PARTS) idem.control
	cat $(PARTS) > $@.new && mv $@.new $@
endif

endif
