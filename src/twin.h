/*
 * twin.h
 *	  What the making of twins and their running share.
 */
#ifndef IDEM_TWIN_H
#define IDEM_TWIN_H

extern int	idem_twin_pin_settings(bool search_path);

#endif							/* IDEM_TWIN_H */
