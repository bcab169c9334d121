/*
 * child.c
 *	  SQL function idem_child: keys derived from a key.
 *
 * The same scope, key and name give the same child on every server and in every
 * release, since it is handed to other services as their key.
 */
#include "postgres.h"

#include "common/sha2.h"
#include "fmgr.h"
#include "utils/builtins.h"

#include "current_key.h"
#include "errors.h"
#include "fingerprint.h"
#include "registry.h"
#include "scope.h"

PG_FUNCTION_INFO_V1(idem_child);

#define UUID_LEN		16
#define UUID_TEXT_LEN	36

/*
 * The key that is derived from scope, key and name: an UUID of version 8, the
 * first bits of a SHA-256 over the three, each behind its length.
 */
char *
idem_child_key(text *scope, text *key, const char *name, int len)
{
	StringInfoData buf;
	static const char hex[] = "0123456789abcdef";
	uint8		digest[PG_SHA256_DIGEST_LENGTH];
	char	   *uuid;
	char	   *p;

	initStringInfo(&buf);
	idem_digest_append_part(&buf, VARDATA_ANY(scope),
							VARSIZE_ANY_EXHDR(scope));
	idem_digest_append_part(&buf, VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key));
	idem_digest_append_part(&buf, name, len);
	idem_digest(buf.data, buf.len, digest);
	pfree(buf.data);

	digest[6] = (digest[6] & 0x0F) | 0x80;
	digest[8] = (digest[8] & 0x3F) | 0x80;
	uuid = palloc(UUID_TEXT_LEN + 1);
	p = uuid;
	for (int i = 0; i < UUID_LEN; i++)
	{
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*p++ = '-';
		*p++ = hex[digest[i] >> 4];
		*p++ = hex[digest[i] & 0x0F];
	}
	*p = '\0';
	return uuid;
}

/*
 * idem_child(key, name, scope) -> text
 */
Datum
idem_child(PG_FUNCTION_ARGS)
{
	text	   *key = IDEM_ARG_TEXT(0);
	text	   *name = IDEM_ARG_TEXT(1);
	IdemScope	scope;

	idem_registry_check_key(key, false);
	if (name == NULL || VARSIZE_ANY_EXHDR(name) == 0)
		idem_report_missing("name");
	idem_scope_resolve(IDEM_ARG_TEXT(2), IDEM_SCOPE_USING, &scope);
	PG_RETURN_TEXT_P(cstring_to_text(idem_child_key(scope.name, key,
													VARDATA_ANY(name),
													VARSIZE_ANY_EXHDR(name))));
}
