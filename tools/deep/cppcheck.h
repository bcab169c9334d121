/* What cppcheck has to know of PostgreSQL's macros. */
#include <stdlib.h>
#define PG_FUNCTION_INFO_V1(f)
#define ERROR 21
#define FATAL 22
#define PANIC 23
#define ereport(level, ...) do { if ((level) >= ERROR) exit(1); } while (0)
#define elog(level, ...) ereport(level, 0)
#define foreach(cell, list) for (ListCell *cell = list_head(list); cell != NULL; cell = lnext(list, cell))
#define forboth(c, l, d, m) for (ListCell *c = list_head(l), *d = list_head(m); c != NULL && d != NULL; c = lnext(l, c), d = lnext(m, d))
#define PG_TRY(...) {
#define PG_CATCH(...) } {
#define PG_FINALLY(...) } {
#define PG_END_TRY(...) }
#define FLEXIBLE_ARRAY_MEMBER
#define pg_attribute_noreturn() __attribute__((noreturn))
#define dlist_foreach(iter, list) for (iter.cur = (list)->head.next; iter.cur != &(list)->head; iter.cur = iter.cur->next)
