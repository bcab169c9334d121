/*
 * release.h
 *	  The version of this library, and whether the database's objects have it.
 */
#ifndef IDEM_RELEASE_H
#define IDEM_RELEASE_H

/* as in idem.control */
#ifndef IDEM_VERSION
#define IDEM_VERSION "1.1.0"
#endif

extern bool idem_release_fits;

extern void idem_release_init(void);
extern bool idem_release_look(int elevel);

/*
 * Nothing is done, and no row is let through a trigger, by a library that does
 * not know the objects of the database.
 */
static inline void
idem_release_require(void)
{
	if (unlikely(!idem_release_fits))
		(void) idem_release_look(ERROR);
}

#endif							/* IDEM_RELEASE_H */
